use grove_tree::leaf_name;
use std::path::PathBuf;

/// A result of the XLA runtime.
pub type Result<T, E = XlaError> = std::result::Result<T, E>;

/// An error of the XLA runtime.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum XlaError {
    /// The library cannot be loaded, or is not a PJRT plugin.
    #[error("{}: not a PJRT plugin: {reason}; give the path of a PJRT library, such as xla_cpu_pjrt.so", path.display())]
    NoPlugin {
        /// The file.
        path: PathBuf,
        /// The linker's message, or the missing function.
        reason: String,
    },
    /// The version of the plugin's API is not supported.
    #[error(
        "{}: the plugin has version {found} of the PJRT API; grove needs 0.{minimum} or a later 0.x: install another \
         version of the plugin", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The plugin's version.
        found: String,
        /// The minimum minor version.
        minimum: i32,
    },
    /// The devices do not form a mesh.
    #[error("the mesh {mesh} cannot be created: {reason}")]
    Mesh {
        /// The axes and their sizes.
        mesh: String,
        /// The reason.
        reason: String,
    },
    /// An array cannot be split over a mesh as requested.
    #[error("the {}: {reason}", leaf_name("leaf", .leaf))]
    Sharding {
        /// Path of the leaf.
        leaf: String,
        /// The reason.
        reason: String,
    },
    /// A path pattern that matches no leaf.
    #[error("{0}")]
    Pattern(String),
    /// The plugin lacks a function.
    #[error("the plugin has no {0}: install a later version of it")]
    Missing(&'static str),
    /// An error of the plugin, with its code (absl's `StatusCode`).
    #[error("{function}: {message}")]
    Plugin {
        /// The function that failed.
        function: &'static str,
        /// The code.
        code: u32,
        /// The plugin's message.
        message: String,
    },
    /// An argument does not match the program.
    #[error("argument {index} of the program is {found}; the program takes {expected}")]
    Argument {
        /// Index of the argument.
        index: usize,
        /// The argument's type.
        found: String,
        /// The type of the program's parameter.
        expected: String,
    },
    /// A declared parameter differs from the program's.
    #[error("parameter {index} is declared as {found}; the program has {expected}")]
    Parameter {
        /// Index of the parameter.
        index: usize,
        /// The declared type.
        found: String,
        /// The type of the program's parameter.
        expected: String,
    },
    /// An array or a device of another client. The field names it.
    #[error("{0} belongs to another client: copy the array through the host, with to_host and from_host")]
    OtherClient(String),
    /// The number of arguments differs from the program's.
    #[error("the program takes {expected} {what}, not {found}")]
    ArgumentCount {
        /// The number given.
        found: usize,
        /// The number that the program takes.
        expected: usize,
        /// Name of the items: arguments, parameters, or lists of arguments.
        what: &'static str,
    },
    /// The size of host data does not match the type.
    #[error("{found} bytes were given instead of {expected}")]
    HostSize {
        /// Number of bytes given.
        found: usize,
        /// The type of the array.
        expected: String,
    },
    /// The bytes of a stored executable are damaged.
    #[error("the stored executable is damaged or of another version: compile it again")]
    Stored,
    /// An option of a plugin has another type than the plugin expects, or is out of range.
    #[error("the option {name} is {found}; the plugin takes {expected}")]
    Option {
        /// The option.
        name: String,
        /// Type and value of the option.
        found: String,
        /// The expected type.
        expected: String,
    },
    /// A device is assigned to two partitions of one program.
    #[error("device {0} is listed twice: each partition of a program needs its own device")]
    DeviceTwice(i32),
    /// A function cannot be registered for custom calls.
    #[error("the function for custom calls @{name} cannot be registered: {reason}")]
    CustomCall {
        /// Name of the function.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A device that does not exist.
    #[error("there is no device {index}: the {platform} plugin has {count}")]
    NoDevice {
        /// The requested index.
        index: usize,
        /// Number of devices of the client.
        count: usize,
        /// The platform's name.
        platform: String,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for XlaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Error code of exhausted memory.
const RESOURCE_EXHAUSTED: u32 = 8;

impl XlaError {
    /// Returns true if a device is out of memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Plugin { code: RESOURCE_EXHAUSTED, .. })
    }
}
