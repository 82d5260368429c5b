//! Functions with custom derivatives.

mod jvp;
mod shell;
mod tape;
mod vjp;

use crate::{
    Graph, Traced,
    traced::{Recording, outputs_at},
    types::Types,
};
pub use jvp::{CustomJvp, custom_jvp};
use shell::Arrays;
pub(crate) use tape::along_tape;
pub use vjp::{CustomVjp, custom_vjp};

/// Traces a user's function into a graph. All results have the given name.
fn graph<F>(types: Types, result: &str, f: impl FnOnce(&Recording) -> Arrays<Traced>) -> Graph {
    let recording = Recording::start(types);
    let results = f(&recording).into_iter().flatten();
    recording.try_finish(outputs_at(result, results)).unwrap_or_else(|_| {
        panic!(
            "`{}` returns a {result} of a different trace than its arguments: pass all arrays as arguments",
            name_of::<F>()
        )
    })
}

/// Returns the name of a type without its module path.
fn name_of<F>() -> String {
    let name = std::any::type_name::<F>();
    let generic = name.find('<').unwrap_or(name.len());
    let start = name[..generic].rfind("::").map_or(0, |at| at + 2);
    name[start..].to_owned()
}
