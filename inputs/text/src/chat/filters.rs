//! The filters of a template: Jinja's, charged for the values that they create and read.

use minijinja::{
    Environment, Error, ErrorKind, State, Value, filters,
    value::{Kwargs, Rest, ValueKind, from_args},
};

use super::{
    budget::Budget,
    filter::{one, own},
    json::Json,
    methods, paid, predicates, python,
};

type Result<T> = std::result::Result<T, Error>;

/// Maximum indentation, in spaces.
const WIDEST: usize = 1000;

/// Adds filters and tests to an environment.
pub(super) fn add(env: &mut Environment<'_>, budget: &Budget) {
    type Named = (&'static str, Value);
    // Filters that do not read the entries of a value.
    let shallow: [Named; 5] = [
        ("d", Value::from_function(filters::default)),
        ("default", Value::from_function(filters::default)),
        ("first", Value::from_function(filters::first)),
        ("items", Value::from_function(filters::items)),
        ("last", Value::from_function(filters::last)),
    ];
    // Filters that create a list of the entries.
    let listing: [Named; 14] = [
        ("dictsort", Value::from_function(filters::dictsort)),
        ("groupby", Value::from_function(filters::groupby)),
        ("list", Value::from_function(filters::list)),
        ("map", Value::from_function(filters::map)),
        ("max", Value::from_function(filters::max)),
        ("min", Value::from_function(filters::min)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("reverse", Value::from_function(filters::reverse)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("sort", Value::from_function(filters::sort)),
        ("sum", Value::from_function(filters::sum)),
        ("unique", Value::from_function(filters::unique)),
    ];
    // Filters that create a single value.
    let single: [Named; 9] = [
        ("abs", Value::from_function(filters::abs)),
        ("attr", Value::from_function(filters::attr)),
        ("bool", Value::from_function(filters::bool)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("lower", Value::from_function(filters::lower)),
        ("round", Value::from_function(filters::round)),
        ("safe", Value::from_function(filters::safe)),
        ("title", Value::from_function(filters::title)),
        ("upper", Value::from_function(filters::upper)),
    ];
    for (name, filter) in shallow {
        own(env, budget, name, move |state, args, budget| {
            args.iter().try_for_each(|arg| budget.count(arg))?;
            filter.call(state, &args)
        });
    }
    for (name, filter) in listing {
        // These two do not read the content of entries.
        let reading = !matches!(name, "list" | "reverse");
        own(env, budget, name, move |state, args, budget| {
            budget.list(one(&args)?)?;
            args.iter().try_for_each(|arg| if reading { budget.read(arg) } else { Ok(()) })?;
            filter.call(state, &args)
        });
    }
    for (name, filter) in single {
        own(env, budget, name, move |state, args, budget| {
            args.iter().try_for_each(|arg| budget.read(arg))?;
            filter.call(state, &args)
        });
    }
    for name in ["count", "length"] {
        own(env, budget, name, |_, args, budget| {
            let value = one(&args)?;
            budget.count(value)?;
            // An undefined value is empty in Jinja.
            if value.is_undefined() { Ok(Value::from(0)) } else { filters::length(value).map(Value::from) }
        });
    }
    for name in ["e", "escape"] {
        own(env, budget, name, |_, args, budget| Ok(Value::from(escape(&python::text(one(&args)?, budget)?))));
    }
    own(env, budget, "float", |state, args, _| {
        number(state, &Value::from_function(filters::float), &args, Value::from(0.0))
    });
    own(env, budget, "format", |_, args, budget| {
        let pattern = python::text(one(&args)?, budget)?;
        methods::printf(&pattern, &args[1..], budget)
    });
    own(env, budget, "indent", indent);
    own(env, budget, "int", |state, args, _| number(state, &Value::from_function(filters::int), &args, Value::from(0)));
    own(env, budget, "join", join);
    own(env, budget, "replace", |_, args, budget| {
        let (value, from, to, most): (&Value, &str, &str, Option<i64>) = from_args(&args)?;
        methods::replace(&python::text(value, budget)?, from, to, most, budget)
    });
    own(env, budget, "string", |_, args, budget| Ok(Value::from(python::text(one(&args)?, budget)?)));
    own(env, budget, "tojson", to_json);
    own(env, budget, "trim", |_, args, budget| {
        let (value, letters): (&Value, Option<&str>) = from_args(&args)?;
        Ok(Value::from(methods::strip(&python::text(value, budget)?, letters, true, true)))
    });
    paid::add(env, budget);
    predicates::add(env, budget);
}

/// Escapes HTML, with the same entities as markupsafe.
fn escape(text: &str) -> String {
    let signs = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ("\"", "&#34;")];
    signs.iter().fold(text.to_owned(), |text, (sign, name)| text.replace(sign, name))
}

/// Converts to a number. If that fails, returns the given default, or zero.
fn number(state: &State, filter: &Value, args: &[Value], zero: Value) -> Result<Value> {
    let (args, kwargs): (&[Value], Kwargs) = from_args(args)?;
    let value = one(args)?;
    let otherwise =
        args.get(1).cloned().map_or_else(|| kwargs.get::<Option<Value>>("default"), |given| Ok(Some(given)))?;
    let value =
        value.as_str().map_or_else(|| value.clone(), |text| Value::from(methods::strip(text, None, true, true)));
    match filter.call(state, std::slice::from_ref(&value)) {
        Ok(number) if !value.is_none() && !value.is_undefined() => Ok(number),
        _ => Ok(otherwise.unwrap_or(zero)),
    }
}

fn indent(state: &State, args: Rest<Value>, budget: &Budget) -> Result<Value> {
    let value = one(&args)?;
    let named = args.last().and_then(|last| Kwargs::try_from(last.clone()).ok());
    let width = match args.get(1).filter(|width| width.kind() == ValueKind::Number) {
        Some(width) => usize::try_from(width.clone())?,
        None => named.map(|kwargs| kwargs.get::<Option<usize>>("width")).transpose()?.flatten().unwrap_or(4),
    };
    if width > WIDEST {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("the indentation exceeds {WIDEST} spaces")));
    }
    let text = value.as_str().unwrap_or_default();
    budget.spend(text.len() + width * (1 + text.matches('\n').count()))?;
    Value::from_function(filters::indent).call(state, &args)
}

fn join(_: &State, args: Rest<Value>, budget: &Budget) -> Result<Value> {
    let (value, glue, kwargs): (&Value, Option<&str>, Kwargs) = from_args(&args)?;
    let glue = glue.map_or_else(|| kwargs.get::<Option<&str>>("d"), |glue| Ok(Some(glue)))?.unwrap_or_default();
    let attribute: Option<&str> = kwargs.get("attribute")?;
    kwargs.assert_all_used()?;
    budget.count(value)?;
    match attribute {
        None => methods::join(glue, value, budget),
        Some(name) => {
            let items = value.try_iter()?.map(|item| item.get_attr(name)).collect::<Result<Vec<_>>>()?;
            methods::join(glue, &Value::from(items), budget)
        }
    }
}

/// `tojson` as in transformers: `json.dumps`, without escaping HTML.
fn to_json(_: &State, args: Rest<Value>, budget: &Budget) -> Result<Value> {
    let (args, kwargs): (&[Value], Kwargs) = from_args(&args)?;
    let given = |place: usize, name: &str| match args.get(place) {
        Some(value) => Ok(Some(value.clone())),
        None => kwargs.get::<Option<Value>>(name),
    };
    let value = one(args)?;
    let (ascii, indent) = (given(1, "ensure_ascii")?, given(2, "indent")?);
    let (separators, sorted) = (given(3, "separators")?, given(4, "sort_keys")?);
    kwargs.assert_all_used()?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => match indent.as_str() {
            Some(text) => Some(text.to_owned()),
            None => Some(" ".repeat(usize::try_from(i64::try_from(indent)?.max(0)).unwrap_or(0).min(WIDEST))),
        },
    };
    let (mut comma, mut colon) = (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    if let Some(separators) = separators.filter(|separators| !separators.is_none()) {
        comma = python::text(&separators.get_item_by_index(0)?, budget)?;
        colon = python::text(&separators.get_item_by_index(1)?, budget)?;
    }
    let is_true = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let json = Json { indent, comma, colon, ascii: is_true(ascii), sorted: is_true(sorted) };
    json.dump(value, budget).map(Value::from)
}
