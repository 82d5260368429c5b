//! Templates that pass minijinja's own limits: fuel, and a formatter that counts the output. They are the reason for
//! copying the syntax tree in `chat/guard`. If one of these tests fails, minijinja has learnt to refuse the template,
//! and that part of the guard can be removed.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use grove_text::chat::{ChatTemplate, Message};
use minijinja::{
    Environment, Error, ErrorKind, Value, context,
    value::{Enumerator, Object, ObjectRepr},
};

/// Fuel of this engine, far below that of a chat template.
const FUEL: u64 = 1_000;

/// Maximum output of this engine, in bytes.
const LONGEST: usize = 1_000;

/// Renders with minijinja's stable interface only: fuel, and an output limit that also applies to captured blocks.
fn engine(source: &str, context: Value) -> Result<String, Error> {
    let mut env = Environment::new();
    env.set_fuel(Some(FUEL));
    let written = AtomicUsize::new(0);
    env.set_formatter(move |out, _, value| {
        let text = value.to_string();
        if written.fetch_add(text.len(), Ordering::Relaxed) + text.len() > LONGEST {
            return Err(Error::new(ErrorKind::OutOfFuel, "too long"));
        }
        Ok(out.write_str(&text)?)
    });
    env.render_str(source, context)
}

fn refused(source: &str) -> String {
    let template = ChatTemplate::new(source, [("", "")]);
    template.and_then(|template| template.render(&[Message::new("user", "")], true)).unwrap_err().to_string()
}

/// Two bytes become 32 MiB within 24 operations; 40 would make two terabytes and kill the process.
#[test]
fn operators_double_what_is_in_memory() {
    for (first, step) in [("'ab'", "x ~ x"), ("'ab'", "x + x"), ("'ab'", "x * 2"), ("'ab'", "[x, x] | join")] {
        let source = |times: usize| {
            let steps = format!("{{% set x = {step} %}}").repeat(times);
            format!("{{% set x = {first} %}}{steps}{{{{ x | length }}}}")
        };
        assert_eq!(engine(&source(24), context!()).unwrap(), (2 << 24).to_string(), "{step}");
        let error = refused(&source(100));
        assert!(error.contains("more text and lists than any conversation needs"), "{step}: {error}");
    }
}

/// The compiler evaluates constants before any fuel is counted, and refuses only single constants of more than 100 MB.
#[test]
fn constants_are_made_without_fuel() {
    let source = "{{ ('a' * 30000000) | length }}";
    assert_eq!(engine(source, context!()).unwrap(), "30000000");
    let many = "{% set x = 'a' * 30000000 %}".repeat(100);
    assert!(refused(&many).contains("more text and lists than any conversation needs"));
}

/// A list of one entry that counts the reads.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Object for Counted {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.fetch_add(1, Ordering::Relaxed);
        (key.as_usize() == Some(0)).then(|| Value::from(1))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(1)
    }
}

/// A comparison is one instruction, however much it reads: here 2¹⁶ lists, which take the memory of 17. With 60 steps
/// it would never end, and fuel cannot stop it.
#[test]
fn comparisons_read_without_end() {
    let steps = "{% set x = [x, x] %}{% set y = [y, y] %}".repeat(16);
    for compared in ["x == y", "x < y", "[x] is eq([y])", "x in [y]", "[x, y] | unique == []", "[x, y] | sort == []"] {
        let (x, y) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let values = context!(x => Value::from_object(Counted(x.clone())), y => Value::from_object(Counted(y.clone())));
        engine(&format!("{steps}{{{{ {compared} }}}}"), values).unwrap();
        assert!(x.load(Ordering::Relaxed) + y.load(Ordering::Relaxed) >= 1 << 16, "{compared}");
        let steps = "{% set x = [x, x] %}{% set y = [y, y] %}".repeat(60);
        let error = refused(&format!("{{% set x = [1] %}}{{% set y = [1] %}}{steps}{{{{ {compared} }}}}"));
        assert!(error.contains("more text and lists than any conversation needs"), "{compared}: {error}");
    }
}

/// Text between tags bypasses the formatter, so a block can capture any amount.
#[test]
fn captured_text_is_not_counted() {
    let text = "a".repeat(100_000);
    let source =
        format!("{{% set x %}}{{% for i in range(100) %}}{text}{{% endfor %}}{{% endset %}}{{{{ x | length }}}}");
    assert_eq!(engine(&source, context!()).unwrap(), "10000000");
    let source = source.replace("range(100)", "range(99999)");
    assert!(refused(&source).contains("more text and lists than any conversation needs"));
}

/// A namespace that contains itself is never freed, so every rendering could leak all of its values.
#[test]
fn namespaces_are_leaked() {
    let read = Arc::new(AtomicUsize::new(0));
    let values = context!(x => Value::from_object(Counted(read.clone())));
    engine("{% set n = namespace(x=x) %}{% set n.n = n %}", values).unwrap();
    assert_eq!(Arc::strong_count(&read), 2);
    assert!(refused("{% set n = namespace() %}{% set n.n = n %}").contains("stored in a namespace"));
}
