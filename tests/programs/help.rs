//! `--help` of every example.

use std::fs;

use crate::common::Example;

/// Returns the names of all examples: files and folders of `examples/`.
fn examples() -> Vec<String> {
    let entries = fs::read_dir("examples").expect("tests run in the folder of the package");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_example =
        |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").is_file();
    let names = paths.filter(is_example).filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    names.collect()
}

#[test]
fn every_example_explains_its_options() {
    let names = examples();
    assert!(names.iter().any(|name| name == "gpt2") && names.len() >= 15, "{names:?}");
    for name in names {
        let name: &'static str = name.leak();
        let output = Example(name).run(&["--help"], "");
        let help = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{name}");
        assert!(help.contains(&format!("Usage: {name}")) && help.contains("--json"), "{name}: {help}");
    }
}
