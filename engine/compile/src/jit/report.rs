//! Reports of traces for `GROVE_LOG_COMPILES=1`.

use super::cache::{Compiled, LeafType};

/// Returns the reason for a trace: the difference from the previously used program.
pub(super) fn why<Out>(new: &Compiled<Out>, before: Option<&Compiled<Out>>) -> String {
    let Some(before) = before else { return "the first call".into() };
    let (folded_on, folded_before) = (new.folded_on, before.folded_on);
    let (new, before) = (&new.signature, &before.signature);
    if let Some([now, then]) = new.structure.difference(&before.structure) {
        return format!("the argument has `{now}` instead of `{then}`");
    }
    let name = |(shape, dtype, present): &LeafType| {
        let absent = if *present { "" } else { ", absent" };
        format!("{}{shape:?}{absent}", crate::words::dtype_name(*dtype))
    };
    let pair = new.leaves.iter().zip(&before.leaves).enumerate().find(|(_, (new, before))| new != before);
    match pair {
        Some((i, (new, before))) => format!("leaf {i} of the argument is {} instead of {}", name(new), name(before)),
        None if (new.types, new.fused, folded_on) != (before.types, before.fused, folded_before) => {
            "another backend".into()
        }
        None => "the program was evicted from the cache".into(),
    }
}

/// Removes modules and generic parameters, which can fill a screen, from the name of a function's type: `train::{{closure}}`.
pub(super) fn short_name(name: &str) -> String {
    let mut depth = 0;
    // Hide the arrow of a return type, whose `>` is not a closing bracket.
    let name = name.replace("->", "→");
    let own = name.chars().filter(|c| {
        let outside = depth == 0;
        depth += i32::from(*c == '<') - i32::from(*c == '>');
        outside && depth == 0
    });
    let own: String = own.collect();
    let in_path = |c: char| c.is_alphanumeric() || "_:{}#".contains(c);
    let shorten = |part: &str| {
        let (path, rest) = part.split_at(part.trim_end_matches(|c| !in_path(c)).len());
        let segments = if path.ends_with('}') { 2 } else { 1 };
        let begin = path.rmatch_indices("::").nth(segments - 1).map_or(0, |(at, _)| at + 2);
        format!("{}{rest}", &path[begin..])
    };
    own.split_inclusive(|c| !in_path(c)).map(shorten).collect::<String>().replace('→', "->")
}

#[cfg(test)]
mod tests {
    use super::short_name;

    #[test]
    fn names_without_modules() {
        let cases = [
            ("app::train::run<app::B>::{{closure}}", "run::{{closure}}"),
            ("app::model::step<app::Model<app::B>>", "step"),
            (
                "fn(a::Args<a::B, (a::C, d::E)>) -> (a::Array<a::B, 2>, alloc::vec::Vec<l::Cache<b::B>>)",
                "fn(Args) -> (Array, Vec)",
            ),
        ];
        for (name, short) in cases {
            assert_eq!(short_name(name), short);
        }
    }
}
