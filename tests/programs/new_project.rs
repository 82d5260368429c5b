//! `grove new`.

use grove_cli::{
    Exit,
    new::{Options, create},
};
use std::{fs, path::Path};

fn new(path: &Path, grove: Option<&str>) -> Result<(), Exit> {
    create(&Options { path: path.into(), grove: grove.map(str::to_owned) })
}

#[test]
fn project_has_the_documented_profile_and_a_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deep/my-project");
    new(&path, None).expect("made");
    let manifest = fs::read_to_string(path.join("Cargo.toml")).expect("written");
    let page = fs::read_to_string("docs/library.md").expect("tests run in the folder of the package");
    let block = page.split("```").find(|block| block.starts_with("toml\n[profile.dev]")).expect("a profile");
    assert!(manifest.ends_with(block.trim_start_matches("toml\n")), "{manifest}");
    assert!(manifest.contains("[package]\nname = \"my-project\"\n") && manifest.contains("edition = \"2024\""));
    let checkout = fs::canonicalize(".").expect("the checkout");
    assert!(manifest.contains(&format!("[dependencies]\ngrove-nn = {{ path = {checkout:?} }}\n")), "{manifest}");
    let program = fs::read_to_string(path.join("src/main.rs")).expect("written");
    assert!(["#[derive(Tree", "value_and_grad_with(", "fn main()"].iter().all(|part| program.contains(part)));
    for file in [".cargo/config.toml", "Cargo.lock"] {
        let [of_project, of_grove] = [path.join(file), file.into()].map(|file| fs::read(file).expect("a file"));
        assert!(of_project == of_grove, "{file} is that of grove");
    }
    let beside: Vec<_> = fs::read_dir(directory.path().join("deep")).expect("a directory").collect();
    assert_eq!(beside.len(), 1, "{beside:?}");
}

#[test]
fn dependency_can_be_a_git_repository() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("empty");
    fs::create_dir(&path).expect("made");
    new(&path, Some("https://example.org/grove.git")).expect("an empty directory is taken");
    let manifest = fs::read_to_string(path.join("Cargo.toml")).expect("written");
    assert!(manifest.contains("grove-nn = { git = \"https://example.org/grove.git\" }"), "{manifest}");
}

#[test]
fn refuses_what_would_be_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, file) = (directory.path().join("taken"), directory.path().join("taken/a.txt"));
    fs::create_dir(&path).expect("made");
    fs::write(&file, "mine").expect("written");
    assert!(matches!(new(&path, None), Err(Exit::Failure(message)) if message.contains("is not empty")));
    assert!(matches!(new(&file, None), Err(Exit::Usage(message)) if message.contains("a.txt")));
    assert!(
        matches!(new(&directory.path().join("b"), Some("nowhere")), Err(Exit::Failure(message)) if message.contains("nowhere"))
    );
    for name in ["grove", "grove-nn"] {
        assert!(matches!(new(&directory.path().join(name), None), Err(Exit::Usage(_))));
    }
    let left: Vec<_> = fs::read_dir(directory.path()).expect("a directory").collect();
    assert_eq!((left.len(), fs::read_to_string(&file).expect("kept")), (1, "mine".to_owned()));
}
