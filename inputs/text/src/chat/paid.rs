//! The filters that `guard` adds to a template to charge for its operators.

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    value::{Rest, ValueKind, from_args},
};

use super::{
    budget::{Budget, ENTRY},
    filter::{one, own},
    guard, methods, python,
};

type Result<T> = std::result::Result<T, Error>;

/// Adds these filters.
pub(super) fn add(env: &mut Environment<'_>, budget: &Budget) {
    own(env, budget, guard::TEXT, |_, args, budget| match one(&args)? {
        text if text.kind() == ValueKind::String => Ok(text.clone()),
        other => Ok(Value::from(python::text(other, budget)?)),
    });
    own(env, budget, guard::PART, |_, args, budget| {
        let value = one(&args)?;
        budget.count(value)?;
        Ok(value.clone())
    });
    own(env, budget, guard::TIMES, times);
    own(env, budget, guard::REMAINDER, remainder);
    // Filters that only read are added without `own`, since their value is unchanged.
    let paying = budget.clone();
    env.add_filter(guard::READ, move |value: Value| paying.read(&value).map(|()| value));
    env.add_filter(guard::KEY, |value: Value| match value.as_object() {
        None => Ok(value),
        Some(_) => Err(Error::new(ErrorKind::InvalidOperation, "a list or a map cannot be a key")),
    });
    own(env, budget, guard::SETTLED, |_, args, _| Ok(one(&args)?.clone()));
    let paying = budget.clone();
    env.add_filter(guard::HELD, move |value: Value| held(&value, &paying).map(|()| value));
    own(env, budget, guard::METHOD, methods::of_map);
}

/// Checks that a value may be held by a namespace: strings, numbers, lists and maps. A namespace that held itself
/// would never be freed.
fn held(value: &Value, budget: &Budget) -> Result<()> {
    let mut pending = vec![value.clone()];
    while let Some(value) = pending.pop() {
        budget.spend(ENTRY)?;
        let Some(object) = value.as_object() else { continue };
        let name = object.type_name();
        if ["Namespace", "Loop", "Macro", "Closure"].iter().any(|kind| name.ends_with(kind)) {
            let reason = "a namespace, a loop or a macro cannot be stored in a namespace";
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
        match value.kind() {
            ValueKind::Map => {
                for key in value.try_iter()? {
                    budget.spend(1)?;
                    pending.push(value.get_item(&key)?);
                }
            }
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    budget.spend(1)?;
                    pending.push(item);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// `a * b`: a product of numbers, or a repeated string or list.
fn times(_: &State, args: Rest<Value>, budget: &Budget) -> Result<Value> {
    let (a, b): (&Value, &Value) = from_args(&args)?;
    let many = |value: &Value| value.as_str().is_some() || matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if many(a) || many(b) {
        let (value, count) = if many(a) { (a, b) } else { (b, a) };
        let Ok(count) = i64::try_from(count.clone()) else {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "a text or list can be repeated only an integer number of times",
            ));
        };
        let count = usize::try_from(count).unwrap_or(0);
        let size = value.as_str().map_or_else(|| value.len().unwrap_or(0).saturating_mul(ENTRY), str::len);
        budget.spend(size.saturating_mul(count))?;
        if let Some(text) = value.as_str() {
            return Ok(Value::from(text.repeat(count)));
        }
        let items: Vec<Value> = value.try_iter()?.collect();
        return Ok(std::iter::repeat_n(&items, count).flatten().cloned().collect());
    }
    let product = match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.checked_mul(b).map(integer),
        _ => float(a).zip(float(b)).map(|(a, b)| Value::from(a * b)),
    };
    let refused =
        || Error::new(ErrorKind::InvalidOperation, format!("{} and {} cannot be multiplied", a.kind(), b.kind()));
    product.ok_or_else(refused)
}

/// `a % b`: a formatted text, or the remainder of numbers, which has the sign of the divisor as in Python. `several` is
/// true if `b` is written as several values, which are one argument each.
fn remainder(_: &State, args: Rest<Value>, budget: &Budget) -> Result<Value> {
    let (a, b, several): (&Value, &Value, bool) = from_args(&args)?;
    if let Some(pattern) = a.as_str() {
        let args: Vec<Value> = if several { b.try_iter()?.collect() } else { vec![b.clone()] };
        return methods::printf(pattern, &args, budget);
    }
    let remainder = match (whole(a), whole(b)) {
        (_, Some(0)) => None,
        (Some(a), Some(b)) => Some(integer(a.wrapping_rem(b).wrapping_add(b).wrapping_rem(b))),
        _ => float(a).zip(float(b)).filter(|&(_, b)| b != 0.0).map(|(a, b)| Value::from(a - b * (a / b).floor())),
    };
    let refused = || Error::new(ErrorKind::InvalidOperation, format!("{} % {} has no value", a.kind(), b.kind()));
    remainder.ok_or_else(refused)
}

/// Returns a value as an integer, as which Python also counts true and false.
fn whole(value: &Value) -> Option<i128> {
    i128::try_from(value.clone()).ok().filter(|_| value.is_integer() || value.kind() == ValueKind::Bool)
}

fn float(value: &Value) -> Option<f64> {
    whole(value).map(|whole| whole as f64).or_else(|| f64::try_from(value.clone()).ok())
}

fn integer(value: i128) -> Value {
    i64::try_from(value).map_or(Value::from(value), Value::from)
}
