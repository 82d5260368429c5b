//! Invalid and malicious chat templates.

use grove_text::{
    TextError,
    chat::{ChatTemplate, Message},
};

fn failure(source: &str) -> String {
    let result = ChatTemplate::new(source, [("bos_token", "<s>")])
        .and_then(|template| template.render(&[Message::new("user", "Hello there")], true));
    let shown: String = source.chars().take(200).collect();
    match result {
        Err(error @ TextError::Template { .. }) => error.to_string(),
        Err(error) => panic!("{error}: {shown}"),
        Ok(prompt) => panic!("{} bytes: {shown}", prompt.len()),
    }
}

/// Returns a loop that repeats `step` on the entry `x` of a namespace `n`, followed by `then`.
fn grown(first: &str, step: &str, then: &str) -> String {
    format!(
        "{{% set n = namespace(x={first}) %}}{{% for i in range(100000) %}}{{% set n.x = {step} %}}{{% endfor %}}{then}"
    )
}

#[test]
fn templates_that_never_end_or_explode_are_stopped() {
    let (steps, size) = ("does a loop not end?", "more text and lists than any conversation needs");
    let repeated = |part: &str, times: usize| part.repeat(times);
    let cases = [
        ("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}".into(), steps),
        ("{% for a in range(10000000) %}{% endfor %}".into(), "too many elements"),
        (grown("'ab'", "n.x ~ n.x", ""), size),
        (grown("'ab'", "n.x + n.x", ""), size),
        (grown("'ab'", "n.x * 2", ""), size),
        (grown("[1]", "n.x + n.x", ""), size),
        (grown("[1]", "n.x * 3", ""), size),
        (grown("'ab'", "n.x.replace('a', 'aaaa')", ""), size),
        (grown("'ab'", "n.x | replace('b', 'bbbb')", ""), size),
        (grown("'ab'", "[n.x, n.x, n.x] | join", ""), size),
        (grown("'ab'", "'-'.join([n.x, n.x])", ""), size),
        (grown("'a\\n'", "(n.x ~ 'a\\n') | indent(1000)", ""), size),
        (grown("'ab'", "'{}{}'.format(n.x, n.x)", ""), size),
        (grown("'ab'", "'%s%s' % (n.x, n.x)", ""), size),
        (grown("'ab'", "'%s' % [n.x, n.x]", ""), ""),
        (grown("'ab'", "[n.x, n.x] | string", ""), size),
        (grown("'ab'", "[n.x, n.x] | tojson", ""), size),
        (grown("'ab'", "n.x.split('') | list", ""), "split"),
        (format!("{{% set x = 'ab' %}}{}", repeated("{% set x = x ~ x %}", 100)), size),
        (format!("{{% set x %}}ab{{% endset %}}{}", repeated("{% set x %}{{ x }}{{ x }}{% endset %}", 100)), size),
        (format!("{{% set x = [1] %}}{}{{{{ x }}}}", repeated("{% set x = [x, x] %}", 60)), size),
        (format!("{{% set x = [1] %}}{}{{{{ x == [x] }}}}", repeated("{% set x = [x, x] %}", 60)), size),
        (format!("{{% set x = [1] %}}{}{{{{ x in [x] }}}}", repeated("{% set x = [x, x] %}", 60)), size),
        (format!("{{% set x = [1] %}}{}{{{{ x | tojson }}}}", repeated("{% set x = {'a': x, 'b': x} %}", 60)), size),
        (format!("{{% set x = [1] %}}{}{{{{ [x, x] | sort }}}}", repeated("{% set x = [x, x] %}", 60)), size),
        (format!("{{% set x = [1] %}}{}{{{{ [x] | unique }}}}", repeated("{% set x = [x, x] %}", 60)), size),
        (format!("{{% set x = [1] %}}{}{{{{ x is eq([x]) }}}}", repeated("{% set x = [x, x] %}", 60)), size),
        (format!("{{% set x = [1] %}}{}{{{{ {{x: 1}} }}}}", repeated("{% set x = [x, x] %}", 60)), "cannot be a key"),
        (format!("{{% set x = [1] %}}{}{{{{ {{}}[x] }}}}", repeated("{% set x = [x, x] %}", 60)), "cannot be a key"),
        (format!("{{% set x = [1] %}}{}{{{{ {{}}.get(x) }}}}", repeated("{% set x = [x, x] %}", 60)), size),
        (
            format!(
                "{{% set x = [1] %}}{}{{% for i in [1, 2] %}}{{{{ loop.changed(x) }}}}{{% endfor %}}",
                repeated("{% set x = [x, x] %}", 60)
            ),
            size,
        ),
        (format!("{{% for i in range(100000) %}}{}{{% endfor %}}", repeated("text ", 40_000)), size),
        (
            format!("{{% set x %}}{{% for i in range(100000) %}}{}{{% endfor %}}{{% endset %}}", repeated("a", 9000)),
            size,
        ),
        ("{{ 'a' * 1000000000 }}".into(), size),
        ("{{ ('a' * 60000000) | list | length }}".into(), size),
        ("{{ ('a' * 60000000) | sort | length }}".into(), size),
        ("{{ ([1] * 90000) | tojson(separators=['a' * 100000, '']) | length }}".into(), size),
        (format!("{{% set x = [1] %}}{}{{{{ raise_exception(x) }}}}", repeated("{% set x = [x, x] %}", 60)), size),
        (
            format!(
                "{{% set m = {{ {} }} %}}{}",
                (0..5000).map(|key| format!("{key}: 1, ")).collect::<String>(),
                grown("[]", "n.x + [dict(m)]", "")
            ),
            size,
        ),
        ("{{ ('a' * 10000) * 10000 }}".into(), size),
        ("{{ [1] * 1000000000000000000 == [1] * 1000000000000000000 }}".into(), size),
        ("{{ 2 in [1] * 1000000000000000000 }}".into(), size),
        (
            "{{ range(100000) | list | map('string') | list | join | length }}{{ (range(99999) | list * 99999) }}"
                .into(),
            "",
        ),
        ("{{ messages | tojson(indent=1000000000) | length }}{{ 1 | nothing }}".into(), "nothing is unknown"),
        ("{{ 'a' | indent(1000000000) }}".into(), "exceeds 1000 spaces"),
        ("{{ '{:1000000000}'.format(1) }}".into(), "too much"),
        ("{{ '{:{}}'.format(1, 1000000000) }}".into(), "too much"),
        ("{{ '%1000000000d' % 1 }}".into(), "too much"),
        ("{{ '%*d' % (1000000000, 1) }}".into(), "too much"),
        ("{{ strftime_now('%1000000000d') }}".into(), ""),
        ("{% set x = range(100000) | list %}{% for i in x %}{{ x | select('in', x) | list }}{% endfor %}".into(), size),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into(), "recursion limit"),
        ("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".into(), "recursion limit"),
    ];
    for (source, reason) in cases {
        let error = failure(&source);
        assert!(error.contains(reason), "{error}: {}", &source[..source.len().min(150)]);
    }
}

#[test]
fn deep_nesting_is_safe() {
    // Nested lists are created, read and freed; formatting reports values that are nested too deep.
    let nested = |then: &str, times: &str| grown("[]", "[n.x]", then).replace("100000", times);
    for then in ["", "{{ n.x == n.x }}", "{{ [n.x] == [[n.x[0]]] }}", "{{ n.x | length }}"] {
        let template = ChatTemplate::new(&nested(then, "2500"), [("", "")]).unwrap();
        template.render(&[Message::new("user", "")], true).unwrap();
    }
    for then in ["{{ n.x }}", "{{ n.x | tojson }}", "{{ n.x ~ '' }}"] {
        assert!(failure(&nested(then, "2500")).contains("too deep"));
    }
    assert!(failure(&nested("", "100000")).contains("more text and lists"));
    let deep = [
        format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(5000), "]".repeat(5000)),
        format!("{{{{ x{} }}}}", ".a".repeat(100_000)),
        format!("{{{{ x{} }}}}", "[0]".repeat(80_000)),
        format!("{{{{ x{} }}}}", "|d".repeat(80_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(100_000)),
        format!("{{{{ 1{} }}}}", "-1".repeat(100_000)),
        format!("{{{{ x{} }}}}", " and x".repeat(40_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(60_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
        "{% if x %}".repeat(20_000),
        format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(20_000)),
        format!("{}{}", "{% for x in [1] %}".repeat(300), "{% endfor %}".repeat(300)),
    ];
    for source in deep {
        let error = failure(&source);
        assert!(error.contains("too deep") || error.contains("recursion"), "{error}");
    }
}

#[test]
fn template_errors_name_the_line() {
    let cases = [
        ("a\nb\n{% if x %}\nc", 4, "end of"),
        ("a\n{{ 1 + }}", 2, "unexpected"),
        ("\n\n{% include 'secret' %}", 3, "not allowed in a chat template"),
        ("{% import 'x' as y %}", 1, "not allowed in a chat template"),
        ("{% extends 'x' %}", 1, "not allowed in a chat template"),
        ("\n{% block x %}{% endblock %}", 2, "not allowed in a chat template"),
        ("{% autoescape true %}{% endautoescape %}", 1, "not allowed in a chat template"),
        ("a\n{{ f(*x) }}", 2, "`*list`"),
        ("a\n{{ f(**x) }}", 2, "`*list`"),
        ("a\nb\n{{ messages[0].content.nothing.more }}", 3, "undefined"),
        ("\n{{ 'a' | undefined_filter }}", 2, "undefined_filter is unknown"),
        ("\n{{ undefined_function() }}", 2, "undefined_function is unknown"),
        ("\n{{ 'a'.undefined_method() }}", 2, "undefined_method"),
        ("\n\n{{ 1 is undefined_test }}", 3, "undefined_test is unknown"),
        ("\n{{ debug() }}", 2, "debug is unknown"),
        ("\n{% set n = namespace() %}{% set n.n = n %}", 2, "stored in a namespace"),
        ("\n{% set n = namespace() %}{% set n.n = [{'a': n}] %}", 2, "stored in a namespace"),
        ("\n{% set n = namespace() %}{% for x in [n] %}{% set n.n = loop %}{% endfor %}", 2, "stored in a namespace"),
        ("\n{{ 3 is divisibleby(0) }}", 2, "divisible by zero"),
    ];
    for (source, line, reason) in cases {
        let error = failure(source);
        assert!(error.contains(reason), "{source}: {error}");
        assert!(error.contains(&format!("line {line}: ")), "{source}: {error}");
    }
    let long = "a".repeat(300_000);
    assert!(failure(&long).contains("300000 bytes"));
    // A panic of the engine is an error too.
    assert!(failure("{% for x in [1] %}{{ loop.cycle() }}{% endfor %}").contains("fails on it"));
}
