//! Comparison with JAX, and the known differences.

use std::collections::{BTreeMap, BTreeSet};

use super::{Case, Found, Mode, Quantity, numbers, read};

/// Differences from JAX: for each function and kind of arguments, the modes that differ.
#[derive(Debug, Default)]
struct Differences {
    /// Modes by function and kind of arguments.
    found: BTreeMap<(String, String), Vec<String>>,
    details: Vec<String>,
}

/// Fails unless the results of cases differ from JAX exactly in the functions and modes that a file lists. The lines of the
/// file follow headings in brackets, which are the reasons. Writes the differences to the folder `GROVE_DIFFERENCES`, if it is
/// set.
pub fn check<'a>(name: &str, results: impl IntoIterator<Item = (&'a Case, Vec<Mode>)>, expected: Option<&str>) {
    let (mut differences, mut functions) = (Differences::default(), BTreeSet::new());
    for (case, modes) in results {
        functions.insert(case.name());
        for (mode, quantity, found) in modes {
            differences.add(case, mode, quantity, &found);
        }
    }
    let found = differences.lines();
    if let Some(folder) = std::env::var_os("GROVE_DIFFERENCES") {
        let folder = std::path::PathBuf::from(folder);
        let text = |lines: Vec<&String>| lines.into_iter().map(|line| format!("{line}\n")).collect::<String>();
        std::fs::write(folder.join(format!("{name}.txt")), text(found.iter().collect())).unwrap();
        std::fs::write(folder.join(format!("{name}.details")), text(differences.details.iter().collect())).unwrap();
    }
    let expected = expected.map(read).unwrap_or_default();
    let expected = lines(&expected).filter(|line| functions.contains(function(line)));
    let expected: BTreeSet<_> = expected.map(str::to_owned).collect();
    let of = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>().join("\n");
    let (new, gone) = (of(&found, &expected), of(&expected, &found));
    assert!(found == expected, "new:\n{new}\n\nno longer there:\n{gone}\n\n{}", differences.details.join("\n"));
}

/// Returns the lines of a file of differences without the headings.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('['))
}

/// Returns the function in a line of differences.
fn function(line: &str) -> &str {
    line.split(" | ").next().unwrap_or_default()
}

/// Fails unless each reason in a file of differences is a row of docs/jax.md and each function has a case.
pub fn check_reasons(differences: &str) {
    let (page, differences) = (read("docs/jax.md"), read(differences));
    let names: BTreeSet<_> = super::cases().iter().map(Case::name).collect();
    for line in lines(&differences) {
        assert!(names.contains(function(line)), "no case is of the function in `{line}`");
    }
    let reasons: Vec<_> = differences.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')).collect();
    assert!(reasons.len() > 10);
    for reason in reasons {
        assert!(page.contains(&format!("| {reason} |")), "docs/jax.md has no row `{reason}`");
    }
}

impl Differences {
    /// Adds the results of a mode.
    fn add(&mut self, case: &Case, mode: &str, quantity: Quantity, found: &Found) {
        let expected = case.reference(quantity);
        let lists = match found {
            Ok(lists) => lists,
            Err(text) => {
                self.note(case, "refused".into(), mode);
                self.details.push(format!("{} {} {mode}: {text}", case.function, case.arguments));
                return;
            }
        };
        // At single points the elements are independent; elsewhere they are sums of each other.
        let points = case.arguments == "points";
        let finite = expected.iter().flatten().filter(|x| x.is_finite());
        let largest = finite.fold(0.0, |max: f64, x| max.max(x.abs()));
        // Relative tolerance, and absolute tolerance in units in the last place of 1.
        let (relative, least) = match case.dtype.as_str() {
            "float64" => (1e-11, 1e-15),
            // Single precision accumulates errors over many operations.
            _ if case.program.is_some() => (3e-4, 2e-5),
            // Second derivatives are differences of larger numbers.
            _ if points && quantity == Quantity::Product => (3e-5, 5e-6),
            _ if points => (3e-5, 1e-6),
            // JAX flushes denormal numbers to 0.
            _ if case.arguments.starts_with("tiny") => (1e-4, 1e-36),
            _ => (1e-4, 3e-7),
        };
        let x: Vec<_> = case.x.iter().map(|x| numbers(x)).collect();
        for (i, expected) in expected.iter().enumerate() {
            let list = lists.get(i).filter(|list| list.len() == expected.len());
            let Some(list) = list else {
                self.note(case, "shape".into(), mode);
                continue;
            };
            for (j, (&a, &b)) in list.iter().zip(expected).enumerate() {
                let near = (a - b).abs() <= least + relative * if points { b.abs() } else { largest };
                if a == b || a.is_nan() && b.is_nan() || a.is_finite() && b.is_finite() && near {
                    continue;
                }
                let place = match points {
                    true => x.iter().map(|x| format!("{:?}", x[j] as f32)).collect::<Vec<_>>().join(","),
                    false => case.arguments.clone(),
                };
                self.details.push(format!("{} [{i}] {mode} at {place} ({j}): {a:e}, JAX {b:e}", case.function));
                self.note(case, place, mode);
            }
        }
    }

    fn note(&mut self, case: &Case, place: String, mode: &str) {
        let modes = self.found.entry((case.name(), place)).or_default();
        if !modes.iter().any(|known| known == mode) {
            modes.push(mode.to_owned());
        }
    }

    /// Formats one line for each function and set of modes, with the kinds of arguments that differ.
    fn lines(&self) -> BTreeSet<String> {
        let mut lines: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
        for ((function, place), modes) in &self.found {
            lines.entry((function, modes.join(", "))).or_default().push(place);
        }
        lines
            .into_iter()
            .map(|((function, modes), places)| format!("{function} | {modes} | {}", places.join("; ")))
            .collect()
    }
}
