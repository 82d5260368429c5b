//! Conversion of an unpickled object to named tensors.

use candle_core::pickle::Object;
use grove_files::note_once;
use std::path::Path;

use crate::entry::StoredDtype;

use super::storage::{PickledStorage, storage_dtype, torch_dtype, whole};

/// Keys of the state dict in training checkpoints, by precedence. As in timm, averages come first, since training
/// programs evaluate them.
const KEYS: [&str; 11] = [
    "state_dict_ema",
    "model_ema",
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "module",
    "net",
    "network",
    "weights",
    "params",
];

/// Number of leading keys under which averages are stored.
const AVERAGES: usize = 2;

/// A counter that `torch.optim.swa_utils.AveragedModel` stores among its weights.
const COUNTER: &str = "n_averaged";

/// Maximum number of wrappers around a tensor (parameter, subclass and others).
const WRAPPED: usize = 4;

/// A tensor as described by the pickle, not yet checked against the file.
#[derive(Debug)]
pub(super) struct PickledTensor {
    pub(super) dtype: StoredDtype,
    pub(super) shape: Vec<usize>,
    /// Distance between neighbours along each axis, in elements.
    pub(super) strides: Vec<usize>,
    /// Offset from the start of the storage, in elements.
    pub(super) offset: usize,
    pub(super) storage: PickledStorage,
}

/// Names, each with its tensor or the reason why the tensor cannot be read.
pub(super) type Named = Vec<(String, Result<PickledTensor, String>)>;

/// Returns the tensors of a state dict, or of the state dict inside a training checkpoint. A malformed tensor is listed
/// with the reason; values that are not tensors are skipped. If averaged weights exist beside others, a note names
/// `file`.
///
/// # Errors
/// Returns the reason, if there is no state dict.
pub(super) fn tensors(object: Object, file: &Path) -> Result<Named, String> {
    let entries = match object {
        Object::Dict(entries) => entries,
        Object::Build { callable, .. } => return Err(whole_object(*callable)),
        object @ Object::Reduce { .. } => return Err(whole_object(object)),
        _ => return Err("it has no state dict".into()),
    };
    let named = named_tensors(&entries);
    // Training scripts store numbers beside the state dict, such as the best loss, and some are tensors.
    let is_number = |tensor: &PickledTensor| tensor.shape.iter().product::<usize>() == 1;
    let beside = named.iter().all(|(_, tensor)| tensor.as_ref().is_ok_and(is_number))
        && entries.iter().any(|(_, value)| holds_tensors(value));
    if !named.is_empty() && !beside {
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
    let place = |known: &str| inner.iter().position(|(key, _)| key == known);
    if let Some((rank, found)) = KEYS.iter().enumerate().find_map(|(rank, known)| Some((rank, place(known)?))) {
        if let Some(other) = KEYS[AVERAGES..].iter().find(|known| rank < AVERAGES && place(known).is_some()) {
            let (file, key) = (file.display(), KEYS[rank]);
            note_once(&format!("{file}: the averaged weights are read, {key}, and not {other}"));
        }
        let mut named = inner.swap_remove(found).1;
        named.retain(|(name, _)| name != COUNTER);
        return Ok(named);
    }
    match inner.len() {
        1 => Ok(inner.swap_remove(0).1),
        0 => Err("it has no tensors".into()),
        _ => {
            let keys: Vec<_> = inner.into_iter().map(|(key, _)| key).collect();
            Err(format!("it has several state dicts ({}), but none is named `state_dict` or `model`", keys.join(", ")))
        }
    }
}

/// Returns true for a dict with a tensor.
fn holds_tensors(value: &Object) -> bool {
    matches!(value, Object::Dict(entries) if !named_tensors(entries).is_empty())
}

fn whole_object(object: Object) -> String {
    let class = match object {
        Object::Reduce { callable, .. } => class_name(*callable),
        _ => None,
    };
    let class = class.unwrap_or_else(|| "unknown class".into());
    format!("it has a Python object ({class}) instead of a state dict; in Python, save model.state_dict()")
}

/// Returns the name of a class. Older files store a class with its source: ("module", class, file, source).
fn class_name(object: Object) -> Option<String> {
    let object = match object {
        Object::PersistentLoad(id) => id.tuple().ok()?.into_iter().nth(1)?,
        object => object,
    };
    let (module, class) = object.class().ok()?;
    Some(format!("{module}.{class}"))
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

/// Returns the tensor that an object describes; `None` if the object is not a tensor.
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

/// Builds a tensor from the arguments of `_rebuild_tensor_v2`: storage, offset, size, stride and others. Version 3 adds
/// the element type at index 6.
fn rebuilt(args: Vec<Object>) -> Option<PickledTensor> {
    let dtype = args.get(6).cloned();
    let mut args = args.into_iter();
    let storage = PickledStorage::read(&args.next()?.persistent_load().ok()?)?;
    let offset = whole(&args.next()?)?;
    let shape = sizes(args.next()?)?;
    let strides = sizes(args.next()?)?;
    let dtype = match &*storage.class {
        "UntypedStorage" => match dtype? {
            Object::Class { module_name, class_name } if module_name == "torch" => torch_dtype(&class_name)?,
            _ => return None,
        },
        class => storage_dtype(class)?,
    };
    Some(PickledTensor { dtype, shape, strides, offset, storage })
}

fn sizes(object: Object) -> Option<Vec<usize>> {
    match object {
        Object::Tuple(items) | Object::List(items) => items.iter().map(whole).collect(),
        _ => None,
    }
}
