//! Storages: the flat arrays that tensors are views of, as described in a pickle.

use candle_core::pickle::Object;

use crate::entry::StoredDtype;

/// A storage as described by a persistent id, not yet checked against the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PickledStorage {
    /// Class of `torch.storage`, which determines the element type.
    pub(super) class: String,
    /// Key of the storage in the file.
    pub(super) key: String,
    /// Number of elements.
    pub(super) count: usize,
    /// Offset and number of elements, if the id describes a part of the storage; `None` for the whole storage. In
    /// PyTorch's first versions, a storage could be a view of another.
    pub(super) part: Option<(usize, usize)>,
}

impl PickledStorage {
    /// Parses the id `("storage", class, key, location, count)`. Files from before version 1.6 append `None` or `(key
    /// of the part, offset, count)`. Returns `None` for any other object.
    pub(super) fn read(id: &Object) -> Option<Self> {
        let Object::Tuple(items) = id else { return None };
        let (kind, class, key, count, part) = match &items[..] {
            [kind, class, key, _, count] | [kind, class, key, _, count, Object::None] => {
                (kind, class, key, count, None)
            }
            [kind, class, key, _, count, Object::Tuple(part)] => match &part[..] {
                [_, offset, size] => (kind, class, key, count, Some((whole(offset)?, whole(size)?))),
                _ => return None,
            },
            _ => return None,
        };
        match (kind, class, key) {
            (Object::Unicode(kind), Object::Class { class_name, .. }, Object::Unicode(key)) if kind == "storage" => {
                Some(Self { class: class_name.clone(), key: key.clone(), count: whole(count)?, part })
            }
            _ => None,
        }
    }

    /// Returns the size of an element in bytes; `None` if the class is unknown. Some classes have a size although their
    /// elements cannot be read: in a stream, the position of the next storage depends on it.
    pub(super) fn unit(&self) -> Option<usize> {
        match &*self.class {
            "UntypedStorage" | "QInt8Storage" | "QUInt8Storage" | "QUInt4x2Storage" | "QUInt2x4Storage" => Some(1),
            "QInt32Storage" => Some(4),
            "ComplexDoubleStorage" => Some(16),
            class => storage_dtype(class).map(|dtype| dtype.bitsize() / 8),
        }
    }
}

/// Returns a non-negative integer; `None` for other objects.
pub(super) fn whole(object: &Object) -> Option<usize> {
    match object {
        Object::Int(number) => usize::try_from(*number).ok(),
        Object::Long(number) => usize::try_from(*number).ok(),
        _ => None,
    }
}

/// Returns the element type of a class of `torch.storage`; `None` if unknown.
pub(super) fn storage_dtype(class: &str) -> Option<StoredDtype> {
    Some(match class {
        "DoubleStorage" => StoredDtype::F64,
        "FloatStorage" => StoredDtype::F32,
        "HalfStorage" => StoredDtype::F16,
        "BFloat16Storage" => StoredDtype::BF16,
        "LongStorage" => StoredDtype::I64,
        "IntStorage" => StoredDtype::I32,
        "ShortStorage" => StoredDtype::I16,
        "CharStorage" => StoredDtype::I8,
        "ByteStorage" => StoredDtype::U8,
        "BoolStorage" => StoredDtype::BOOL,
        "ComplexFloatStorage" => StoredDtype::C64,
        _ => return None,
    })
}

/// Returns an element type without a storage class, by its name in `torch`; `None` if unknown.
pub(super) fn torch_dtype(name: &str) -> Option<StoredDtype> {
    Some(match name {
        "uint16" => StoredDtype::U16,
        "uint32" => StoredDtype::U32,
        "uint64" => StoredDtype::U64,
        "float8_e4m3fn" => StoredDtype::F8_E4M3,
        "float8_e5m2" => StoredDtype::F8_E5M2,
        _ => return None,
    })
}
