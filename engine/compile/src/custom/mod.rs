//! Functions with custom derivatives.

mod jvp;
mod shell;
mod tape;
mod vjp;

pub use jvp::{CustomJvp, custom_jvp};
pub(crate) use tape::along_tape;
pub use vjp::{CustomVjp, custom_vjp};

/// Returns the name of a type without its module path.
fn name_of<F>() -> String {
    let name = std::any::type_name::<F>();
    let generic = name.find('<').unwrap_or(name.len());
    let start = name[..generic].rfind("::").map_or(0, |at| at + 2);
    name[start..].to_owned()
}
