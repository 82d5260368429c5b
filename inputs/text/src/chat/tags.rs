//! Tags that minijinja does not support, or interprets differently from Jinja.
//!
//! Templates mark the model's output with `{% generation %}`, for masks in training. In a prompt the tag only opens a
//! scope, like `{% with %}`. And Jinja keeps a newline after `{% raw %}`, for which minijinja requires a `+`.

use std::borrow::Cow;

/// Converts such tags to minijinja's syntax. The rest of the template, including line numbers, is unchanged.
pub(super) fn known(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") && !source.contains("raw") {
        return source.into();
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        let length = match rest.as_bytes().get(1) {
            Some(b'#') if !raw => rest[2..].find("#}").map_or(rest.len(), |end| end + 4),
            Some(b'{') if !raw => closed(rest, "}}"),
            // In raw text, the end of an apparent tag may be beyond the end of the raw text.
            Some(b'%') if raw && name(rest) != "endraw" => 1,
            Some(b'%') => {
                let tag = &rest[..closed(rest, "%}")];
                let name = name(tag);
                raw = name == "raw";
                match name {
                    "generation" => out.push_str(&tag.replacen(name, "with", 1)),
                    "endgeneration" => out.push_str(&tag.replacen(name, "endwith", 1)),
                    "raw" if !tag.ends_with("-%}") && !tag.ends_with("+%}") => out.push_str(&tag.replace("%}", "+%}")),
                    _ => out.push_str(tag),
                }
                rest = &rest[tag.len()..];
                continue;
            }
            _ => 1,
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out.push_str(rest);
    out.into()
}

/// Returns the name of a tag.
fn name(tag: &str) -> &str {
    let name = tag[2..].trim_start_matches(['-', '+']).trim_start();
    name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default()
}

/// Returns the length of a tag including `end`, which can also occur in strings inside the tag; the length of the text
/// if `end` is missing.
fn closed(tag: &str, end: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (place, letter) in tag.char_indices().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if tag[place..].starts_with(end) => return place + end.len(),
            None if matches!(letter, '\'' | '"') => quote = Some(letter),
            None => {}
        }
    }
    tag.len()
}

#[cfg(test)]
mod tests {
    use super::known;

    #[test]
    fn only_tags_are_written_anew() {
        let cases = [
            ("{% generation %}a{% endgeneration %}", "{% with %}a{% endwith %}"),
            ("{%- generation -%}\na{%+endgeneration+%}", "{%- with -%}\na{%+endwith+%}"),
            ("{{ '{% generation %}' }}{% generation %}", "{{ '{% generation %}' }}{% with %}"),
            ("{# {% generation %} #}{%generation%}", "{# {% generation %} #}{%with%}"),
            (
                "{% raw %}{% generation %}{% endraw %}{% generation %}",
                "{% raw +%}{% generation %}{% endraw %}{% with %}",
            ),
            ("{%- raw -%}{% '{% endraw %}{% generation %}", "{%- raw -%}{% '{% endraw %}{% with %}"),
            ("{% raw +%}{{ '{% endraw %}{% generation %}", "{% raw +%}{{ '{% endraw %}{% with %}"),
            ("{% set x = '%}{% generation %}' %}", "{% set x = '%}{% generation %}' %}"),
            (r#"{{ "\"{% generation %}" }}"#, r#"{{ "\"{% generation %}" }}"#),
            ("generation { generation } {", "generation { generation } {"),
            ("{% generations %}{% my_generation %}", "{% generations %}{% my_generation %}"),
            ("é{% generation %}é", "é{% with %}é"),
            ("{% generation", "{% with"),
            ("{# generation", "{# generation"),
        ];
        for (source, expected) in cases {
            assert_eq!(known(source), expected);
        }
    }
}
