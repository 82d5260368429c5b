//! From what a pickle holds to named tensors.

use candle_core::pickle::Object;

use crate::entry::StoredDtype;

/// Under which keys training programs put the state dict, in order of preference.
const KEYS: [&str; 9] =
    ["state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "weights", "params"];

/// How many times a tensor may be wrapped (parameter, subclass, …).
const WRAPPED: usize = 4;

/// A tensor as the pickle describes it; nothing is checked against the file.
#[derive(Debug)]
pub(super) struct PickledTensor {
    pub(super) dtype: StoredDtype,
    pub(super) shape: Vec<usize>,
    /// In elements.
    pub(super) strides: Vec<usize>,
    /// In elements from the start of the storage.
    pub(super) offset: usize,
    /// Name of the archive's entry below `data/`.
    pub(super) storage: String,
}

type Named = Vec<(String, Result<PickledTensor, String>)>;

/// The tensors of a state dict, or of the one inside a training checkpoint. A tensor that cannot be understood is
/// listed with the reason; values that are no tensors are passed over.
///
/// # Errors
/// A reason, if there is no state dict.
pub(super) fn tensors(object: Object) -> Result<Named, String> {
    let entries = match object {
        Object::Dict(entries) => entries,
        Object::Build { callable, .. } => return Err(whole_object(*callable)),
        object @ Object::Reduce { .. } => return Err(whole_object(object)),
        _ => return Err("it holds no state dict".into()),
    };
    let named = named_tensors(&entries);
    if !named.is_empty() {
        return Ok(named);
    }
    let mut inner: Vec<(String, Named)> = entries
        .iter()
        .filter_map(|(key, value)| match (key, value) {
            (Object::Unicode(key), Object::Dict(entries)) => Some((key.clone(), named_tensors(entries))),
            _ => None,
        })
        .filter(|(_, named)| !named.is_empty())
        .collect();
    if let Some(found) = KEYS.iter().find_map(|known| inner.iter().position(|(key, _)| key == known)) {
        return Ok(inner.swap_remove(found).1);
    }
    match inner.len() {
        1 => Ok(inner.swap_remove(0).1),
        0 => Err("it holds no tensors".into()),
        _ => {
            let keys: Vec<_> = inner.into_iter().map(|(key, _)| key).collect();
            Err(format!(
                "it holds several state dicts ({}) and none of them is called `state_dict` or `model`",
                keys.join(", ")
            ))
        }
    }
}

fn whole_object(object: Object) -> String {
    let class = match object {
        Object::Reduce { callable, .. } => match *callable {
            Object::Class { module_name, class_name } => format!("{module_name}.{class_name}"),
            _ => "unknown class".into(),
        },
        _ => "unknown class".into(),
    };
    format!("it holds a whole Python object ({class}), not a state dict; in Python, save model.state_dict() instead")
}

fn named_tensors(entries: &[(Object, Object)]) -> Named {
    entries
        .iter()
        .filter_map(|(key, value)| match key {
            Object::Unicode(name) => Some((name.clone(), tensor(value.clone(), WRAPPED)?)),
            _ => None,
        })
        .collect()
}

/// The tensor that an object describes; `None` if it is something else.
fn tensor(object: Object, wrapped: usize) -> Option<Result<PickledTensor, String>> {
    let Object::Reduce { callable, args } = object else { return None };
    let (Object::Class { module_name, class_name }, Object::Tuple(args)) = (*callable, *args) else { return None };
    if !module_name.starts_with("torch") {
        return None;
    }
    let mut args = args.into_iter();
    match &*class_name {
        "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3" => {
            Some(rebuilt(args.collect()).ok_or_else(|| "its description is broken, or its type is not known".into()))
        }
        "_rebuild_parameter" | "_rebuild_parameter_with_state" => tensor(args.next()?, wrapped.checked_sub(1)?),
        // (function, class, its arguments, state)
        "_rebuild_from_type_v2" => {
            let (callable, args) = (Box::new(args.next()?), Box::new(args.nth(1)?));
            tensor(Object::Reduce { callable, args }, wrapped.checked_sub(1)?)
        }
        name if name.starts_with("_rebuild_") => {
            Some(Err(format!("it is of a kind that is not read ({name}: quantized, sparse or nested)")))
        }
        _ => None,
    }
}

/// From the arguments of `_rebuild_tensor_v2`: storage, offset, size, stride, …; version 3 adds, at index 6, the
/// type of the elements.
fn rebuilt(args: Vec<Object>) -> Option<PickledTensor> {
    let dtype = args.get(6).cloned();
    let mut args = args.into_iter();
    let storage = args.next()?.persistent_load().ok()?.tuple().ok()?;
    let offset = whole(args.next()?)?;
    let shape = sizes(args.next()?)?;
    let strides = sizes(args.next()?)?;
    // ("storage", class, key, location, number of elements)
    let mut storage = storage.into_iter().skip(1);
    let (_, class) = storage.next()?.class().ok()?;
    let key = storage.next()?.unicode().ok()?;
    let dtype = match &*class {
        "UntypedStorage" => match dtype? {
            Object::Class { module_name, class_name } if module_name == "torch" => torch_dtype(&class_name)?,
            _ => return None,
        },
        _ => storage_dtype(&class)?,
    };
    Some(PickledTensor { dtype, shape, strides, offset, storage: key })
}

fn whole(object: Object) -> Option<usize> {
    usize::try_from(object.int_or_long().ok()?).ok()
}

fn sizes(object: Object) -> Option<Vec<usize>> {
    match object {
        Object::Tuple(items) | Object::List(items) => items.into_iter().map(whole).collect(),
        _ => None,
    }
}

/// The element type of a class of `torch.storage`.
fn storage_dtype(class: &str) -> Option<StoredDtype> {
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

/// The types that have no storage class of their own.
fn torch_dtype(name: &str) -> Option<StoredDtype> {
    Some(match name {
        "uint16" => StoredDtype::U16,
        "uint32" => StoredDtype::U32,
        "uint64" => StoredDtype::U64,
        "float8_e4m3fn" => StoredDtype::F8_E4M3,
        "float8_e5m2" => StoredDtype::F8_E5M2,
        _ => return None,
    })
}
