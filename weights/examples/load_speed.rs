//! Measures time and peak memory of loading a GPT-2 sized file: `cargo run -p grove-weights --example load_speed --
//! FILE`.
//!
//! The tensors become leaves of a tree with their own shapes on flex, as f32.

use std::collections::BTreeMap;
use std::time::Instant;

use burn_flex::Flex;
use grove_tree::Array;
use grove_weights::{LoadOptions, NameMap, Step, TensorFiles, load};

/// Returns a line of `/proc/self/status`, in MB.
fn status(key: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1024.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give a file")?;
    let transpose = std::env::args().nth(2).as_deref() == Some("--transpose");
    let before = status("VmHWM");
    let start = Instant::now();
    let checkpoint = TensorFiles::open(&path)?;
    let opened = start.elapsed();
    let mut vectors = BTreeMap::new();
    let mut matrices = BTreeMap::new();
    let mut names = NameMap::new();
    for name in checkpoint.names() {
        // Tree paths split at dots; a flat map of names without dots suffices here.
        let path = name.replace('.', "_");
        match checkpoint.info(name)?.shape[..] {
            [a] => {
                vectors.insert(path.clone(), Array::<Flex, 1>::absent([a]));
                names = names.rule(name, &format!("0.{path}"));
            }
            [a, b] => {
                matrices.insert(path.clone(), Array::<Flex, 2>::absent(if transpose { [b, a] } else { [a, b] }));
                names = names.rule(name, &format!("1.{path}"));
                if transpose {
                    names = names.then(Step::Transpose);
                }
            }
            _ => return Err(format!("{name} is neither a vector nor a matrix").into()),
        }
    }
    let (model, report) = load((vectors, matrices), &checkpoint, &names, &LoadOptions::new(&Default::default()))?;
    let seconds = start.elapsed().as_secs_f64();
    let file = std::fs::metadata(&path)?.len() as f64 / f64::from(1 << 20);
    println!("{report}; opened in {opened:?}, loaded in {seconds:.3} s");
    println!(
        "file {file:.0} MB, peak {:.0} MB ({:.2} of the file), of which {before:.0} MB before; now {:.0} MB",
        status("VmHWM"),
        status("VmHWM") / file,
        status("VmRSS")
    );
    drop(model);
    Ok(())
}
