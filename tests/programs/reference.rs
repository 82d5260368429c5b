//! `docs/cli.md`, the reference of the command line.

use grove_cli::reference::reference;
use std::fs;

const PAGE: &str = "docs/cli.md";

#[test]
fn the_page_has_the_options_of_each_command() {
    let page = reference();
    if std::env::var_os("GROVE_WRITE_REFERENCE").is_some() {
        fs::write(PAGE, &page).expect("written");
    }
    let written = fs::read_to_string(PAGE).expect("tests run in the folder of the package");
    assert!(
        written == page,
        "{PAGE} differs from the options: GROVE_WRITE_REFERENCE=1 cargo test --workspace --test programs reference"
    );
}
