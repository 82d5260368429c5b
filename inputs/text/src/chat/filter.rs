//! A filter whose result is charged.

use minijinja::{Environment, Error, ErrorKind, State, Value, value::Rest};

use super::budget::Budget;

type Result<T> = std::result::Result<T, Error>;

/// Adds a filter. A lazy result becomes a list, and every result is charged.
pub(super) fn own<F>(env: &mut Environment<'_>, budget: &Budget, name: &'static str, filter: F)
where
    F: Fn(&State, Rest<Value>, &Budget) -> Result<Value> + Send + Sync + 'static,
{
    let budget = budget.clone();
    env.add_filter(name, move |state: &State, args: Rest<Value>| -> Result<Value> {
        let result = filter(state, args, &budget)?;
        budget.settle(result)
    });
}

/// The value that a filter is applied to.
pub(super) fn one(args: &[Value]) -> Result<&Value> {
    args.first().ok_or_else(|| Error::from(ErrorKind::MissingArgument))
}
