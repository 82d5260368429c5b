//! Tests of files that several packages copy, because each package is published separately.

use std::fs;

#[test]
fn packages_on_cuda_have_the_build_script_of_the_backend() {
    let of_backend = fs::read_to_string("engine/backend/build.rs").expect("tests run in the folder of the package");
    for package in ["client", "kernels"] {
        let script = format!("engine/backend/cuda/{package}/build.rs");
        assert!(fs::read_to_string(&script).expect("a build script") == of_backend, "{script}");
    }
}
