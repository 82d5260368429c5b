//! Tells the crate if rustc shares its generic instantiations with other crates, as at the dev profile's level.

fn main() {
    // Several crates have this script. A path is relative to a crate's folder, and a file that is not there makes cargo build the
    // crate, and all above it, anew each time.
    println!("cargo::rerun-if-env-changed=OPT_LEVEL");
    println!("cargo::rustc-check-cfg=cfg(shares_generics)");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    if !["2", "3"].contains(&level.as_str()) {
        println!("cargo::rustc-cfg=shares_generics");
    }
}
