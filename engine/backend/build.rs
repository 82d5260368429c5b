//! Sets `cfg(shares_generics)` if rustc shares generic instantiations between crates, as at the dev profile's level.

fn main() {
    // No `rerun-if-changed`: several crates share this script, paths are relative to each crate's folder, and a missing
    // file makes cargo rebuild the crate and its dependents every time.
    println!("cargo::rerun-if-env-changed=OPT_LEVEL");
    println!("cargo::rustc-check-cfg=cfg(shares_generics)");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    if !["2", "3"].contains(&level.as_str()) {
        println!("cargo::rustc-cfg=shares_generics");
    }
}
