//! The tests of a template, such as `is string`: Jinja's, charged for the values that they compare.

use minijinja::{
    Environment, Error, ErrorKind, State, Value, tests,
    value::{Rest, ValueKind},
};

use super::budget::Budget;

type Result<T> = std::result::Result<T, Error>;

/// Adds tests to an environment.
pub(super) fn add(env: &mut Environment<'_>, budget: &Budget) {
    let of_kind = [
        ("boolean", Value::from_function(tests::is_boolean)),
        ("defined", Value::from_function(tests::is_defined)),
        ("undefined", Value::from_function(tests::is_undefined)),
        ("none", Value::from_function(tests::is_none)),
        ("true", Value::from_function(tests::is_true)),
        ("false", Value::from_function(tests::is_false)),
        ("string", Value::from_function(tests::is_string)),
        ("number", Value::from_function(tests::is_number)),
        ("integer", Value::from_function(tests::is_integer)),
        ("float", Value::from_function(tests::is_float)),
        ("mapping", Value::from_function(tests::is_mapping)),
        ("odd", Value::from_function(tests::is_odd)),
        ("even", Value::from_function(tests::is_even)),
        ("filter", Value::from_function(tests::is_filter)),
        ("test", Value::from_function(tests::is_test)),
    ];
    let comparing = [
        ("eq equalto ==", Value::from_function(tests::is_eq)),
        ("ne !=", Value::from_function(tests::is_ne)),
        ("lt lessthan <", Value::from_function(tests::is_lt)),
        ("le <=", Value::from_function(tests::is_le)),
        ("gt greaterthan >", Value::from_function(tests::is_gt)),
        ("ge >=", Value::from_function(tests::is_ge)),
        ("in", Value::from_function(tests::is_in)),
        ("sameas", Value::from_function(tests::is_sameas)),
        ("lower", Value::from_function(tests::is_lower)),
        ("upper", Value::from_function(tests::is_upper)),
    ];
    for (name, test) in of_kind {
        let budget = budget.clone();
        env.add_test(name, move |state: &State, args: Rest<Value>| -> Result<bool> {
            budget.spend(1)?;
            Ok(test.call(state, &args)?.is_true())
        });
    }
    for (names, test) in comparing {
        for name in names.split(' ') {
            let (test, budget) = (test.clone(), budget.clone());
            env.add_test(name, move |state: &State, args: Rest<Value>| -> Result<bool> {
                args.iter().try_for_each(|arg| budget.read(arg))?;
                Ok(test.call(state, &args)?.is_true())
            });
        }
    }
    // In Jinja, strings, maps and undefined values count as sequences, but none does not.
    let iterable = |value: &Value| {
        let kind = value.kind();
        matches!(kind, ValueKind::String | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::Undefined)
    };
    env.add_test("iterable", move |value: Value| iterable(&value));
    env.add_test("sequence", move |value: Value| iterable(&value));
    env.add_test("divisibleby", |value: Value, by: Value| -> Result<bool> {
        let (value, by) = (i64::try_from(value)?, i64::try_from(by)?);
        let rest = value.checked_rem(by);
        rest.map(|rest| rest == 0)
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "nothing is divisible by zero"))
    });
}
