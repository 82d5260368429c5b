//! Locating the user's line of code for the panic messages of a trace.

use grove_backend::panic_hook;
use std::{
    backtrace::Backtrace,
    cell::{Cell, RefCell},
    env, fmt,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::Once,
};

/// Crates whose functions are between a user's line and a panic.
const CRATES: [&str; 14] = [
    "std",
    "core",
    "alloc",
    "burn",
    "burn_tensor",
    "burn_backend",
    "burn_std",
    "burn_router",
    "burn_ir",
    "burn_autodiff",
    "grove_compile",
    "grove_backend",
    "grove_tree",
    "grove_transform",
];

/// Folders of this repository that contain such functions.
const FOLDERS: [&str; 4] = ["engine/compile/src", "engine/backend/src", "engine/tree/src", "engine/transform/src"];

/// Prefix of a location in a message.
const AT: &str = " (at ";

/// The innermost line outside the library that led here, as the end of a message: ` (at src/main.rs:12)`. The name of the
/// function if there are no line tables; empty if neither is known.
///
/// Creation captures a backtrace, which takes milliseconds, so it is used only in panic messages.
pub(crate) struct Caller {
    place: Option<String>,
    method: Option<String>,
}

impl Caller {
    pub(crate) fn here() -> Self {
        let backtrace = Backtrace::force_capture().to_string();
        Self { place: find(&backtrace), method: method(&backtrace) }
    }

    /// Returns the method of Burn's tensors that the user called, if it is known.
    pub(crate) fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{AT}{place})"),
            None => Ok(()),
        }
    }
}

thread_local! {
    /// Number of active traced functions on this thread.
    static TRACING: Cell<usize> = const { Cell::new(0) };
    /// The user's line of the last panic in a traced function.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Calls a function that is traced. If it panics, for example because of a wrong shape, the message ends with the user's line.
#[track_caller]
pub(crate) fn naming_lines<T>(f: impl FnOnce() -> T) -> T {
    // The panic hook belongs to the process and is wrapped once.
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if TRACING.get() == 0 {
                return hook(panic);
            }
            // The end of the trace reports the message, with the line, so it is not reported twice.
            let is_named = panic.payload_as_str().is_none_or(|text| text.contains(AT));
            PLACE.set(if is_named { String::new() } else { Caller::here().to_string() });
            if env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
                hook(panic);
            }
        }));
    });
    TRACING.set(TRACING.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    TRACING.set(TRACING.get() - 1);
    let payload = match result {
        Ok(result) => return result,
        Err(payload) => payload,
    };
    match panic_hook::message(&*payload) {
        Some(text) => panic!("{}{}", text.trim_end(), PLACE.take()),
        None => panic::resume_unwind(payload),
    }
}

/// Returns the location of the user's first frame in a printed backtrace.
fn find(backtrace: &str) -> Option<String> {
    // Function of the current frame. If the frame has a file, the file decides, because the name may lack the crate.
    let mut function: Option<&str> = None;
    let named = |name: &str| is_users_function(name).then(|| format!("the function `{name}`"));
    for line in backtrace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            function = None;
            if is_users_file(place) {
                return Some(without_column(place).to_owned());
            }
        } else if let Some((number, name)) = line.split_once(": ")
            && number.parse::<u32>().is_ok()
            && let Some(found) = function.replace(name).and_then(named)
        {
            return Some(found);
        }
    }
    function.and_then(named)
}

/// Returns the outermost method of Burn's tensors in a printed backtrace that comes before the user's first function.
fn method(backtrace: &str) -> Option<String> {
    let names = backtrace.lines().filter_map(|line| {
        let (number, name) = line.trim().split_once(": ")?;
        number.parse::<u32>().is_ok().then_some(name)
    });
    let of_burn = |name: &&str| name.trim_start_matches('<').starts_with("burn_tensor::");
    let name = names.skip_while(|name| !of_burn(name)).take_while(of_burn).last()?;
    // `burn_tensor::tensor::api::orderable::<impl burn_tensor::Tensor<B,_,K>>::sort`, possibly followed by generic parameters.
    let mut depth = 0;
    let plain: String = name
        .replace("->", "")
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '<');
            let outside = depth == 0;
            depth -= i32::from(*c == '>');
            outside
        })
        .collect();
    let last = plain.rsplit("::").find(|part| !part.is_empty() && !part.starts_with('{'))?;
    Some(last.to_owned())
}

/// Returns true for functions that are not part of this library, Burn or Rust.
fn is_users_function(name: &str) -> bool {
    // `<burn_tensor::Tensor<B> as core::ops::Add>::add` belongs to burn_tensor.
    let name = name.trim_start_matches(['<', '&', '(', '[']).trim_start_matches("mut ").trim_start_matches("dyn ");
    let first: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let known = CRATES.contains(&first.as_str()) || first.starts_with("__") || first.starts_with("rust_");
    // C functions and functions without a name are not useful in a message.
    name.contains("::") && !first.is_empty() && !known
}

/// Returns true for files that are not part of this library, another package or Rust.
fn is_users_file(place: &str) -> bool {
    const OTHERS: [&str; 4] = ["/rustc/", "/rustlib/src/", "/registry/src/", "/git/checkouts/"];
    if OTHERS.iter().any(|folder| place.contains(folder)) {
        return false;
    }
    // Backtraces print paths relative to the current directory.
    let path = match env::current_dir() {
        Ok(folder) => folder.join(place.strip_prefix("./").unwrap_or(place)),
        Err(_) => PathBuf::from(place),
    };
    let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2) else { return true };
    !FOLDERS.iter().any(|folder| path.starts_with(root.join(folder)))
}

/// Removes the column: `file.rs:12:5` becomes `file.rs:12`.
fn without_column(place: &str) -> &str {
    match place.rsplit_once(':') {
        Some((rest, column)) if column.parse::<u32>().is_ok() && rest.contains(".rs:") => rest,
        _ => place,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_line_of_the_user() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().display();
        let text = format!(
            "   0: std::backtrace::Backtrace::create\n   1: grove_compile::traced::caller::Caller::here\n             at \
             {root}/engine/compile/src/traced/caller.rs:35:1\n   2: <burn_tensor::Tensor<B> as core::ops::Add>::add\n   3: \
             core::ops::function::FnOnce::call_once\n             at /rustc/abc/library/core/src/ops/function.rs:250:5\n   4: \
             mine::model::{{{{closure}}}}\n             at /home/me/.cargo/registry/src/x/y.rs:1:1\n   5: \
             {{closure#0}}\n             at /home/me/mine/src/model.rs:17:9\n   6: main\n"
        );
        assert_eq!(find(&text).as_deref(), Some("/home/me/mine/src/model.rs:17"));
        let without = "   0: std::backtrace::Backtrace::create\n   1: grove_compile::trace::trace\n   2: mine::model\n   3: main\n";
        assert_eq!(find(without).as_deref(), Some("the function `mine::model`"));
        assert_eq!(find("   0: <unknown>\n   1: main\n"), None);
        assert_eq!(find(""), None);
        assert_eq!(method(&text).as_deref(), Some("add"));
        assert_eq!(method(without), None);
        let sorts = "   3: burn_router::ops::tensor::float_sort\n   4: burn_tensor::tensor::api::numeric::sort::{{closure}}\n   5: \
                     burn_tensor::tensor::api::orderable::<impl burn_tensor::tensor::api::base::Tensor<B,_,K>>::sort\n   6: \
                     mine::model\n   7: burn_tensor::Tensor::exp\n";
        assert_eq!(method(sorts).as_deref(), Some("sort"));
    }
}
