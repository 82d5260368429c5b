use std::path::PathBuf;

/// A result of the XLA runtime.
pub type Result<T, E = XlaError> = std::result::Result<T, E>;

/// An error of the XLA runtime.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum XlaError {
    /// The library cannot be loaded, or is none of PJRT.
    #[error("{}: not a PJRT plugin: {reason}; give the library of one, such as xla_cpu_pjrt.so", path.display())]
    NoPlugin {
        /// The file.
        path: PathBuf,
        /// The linker's message, or what is missing.
        reason: String,
    },
    /// The plugin's API is not one that this version reads.
    #[error(
        "{}: the plugin has version {found} of the PJRT API, and grove needs 0.{least} or a later 0.x: install another \
         version of the plugin", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The plugin's version.
        found: String,
        /// The least minor version.
        least: i32,
    },
    /// Devices do not form a mesh.
    #[error("the mesh {mesh} cannot be made: {reason}")]
    Mesh {
        /// The axes and their sizes.
        mesh: String,
        /// The reason.
        reason: String,
    },
    /// An array cannot lie on a mesh as it was asked for.
    #[error("the leaf `{leaf}`: {reason}")]
    Sharding {
        /// Its path.
        leaf: String,
        /// The reason.
        reason: String,
    },
    /// A pattern of paths that fits no leaf.
    #[error("{0}")]
    Pattern(String),
    /// The plugin lacks a function.
    #[error("the plugin has no {0}: install a later version of it")]
    Missing(&'static str),
    /// An error of the plugin, with its code, as absl's `StatusCode`.
    #[error("{function}: {message}")]
    Plugin {
        /// The function that failed.
        function: &'static str,
        /// The code.
        code: u32,
        /// The plugin's message.
        message: String,
    },
    /// Arguments do not fit a program.
    #[error("argument {index} of the program is {found}, and the program takes {expected}")]
    Argument {
        /// Its number.
        index: usize,
        /// The argument's type.
        found: String,
        /// The program's.
        expected: String,
    },
    /// A parameter that is declared for a program is not the program's.
    #[error("parameter {index} is declared as {found}, and that of the program is {expected}")]
    Parameter {
        /// Its number.
        index: usize,
        /// The type that is declared.
        found: String,
        /// The program's.
        expected: String,
    },
    /// An array, or a device, of another client, which has devices of its own. Its name is given.
    #[error("{0} is of another client: copy the array by way of the host, with to_host and from_host")]
    OtherClient(String),
    /// Another number of arguments than a program takes.
    #[error("the program takes {expected} {what}, and {found} are given")]
    ArgumentCount {
        /// Their number.
        found: usize,
        /// The program's.
        expected: usize,
        /// Their name: arguments, parameters, or lists of arguments.
        what: &'static str,
    },
    /// The size of host data is not that of the shape.
    #[error("{found} bytes are given for {expected}")]
    HostSize {
        /// Bytes that are given.
        found: usize,
        /// The type.
        expected: String,
    },
    /// Bytes of an executable that are not whole.
    #[error("the stored executable is damaged or of another version: compile it again")]
    Stored,
    /// An option of a plugin has another type than the plugin reads, or is out of range.
    #[error("the option {name} is {found}, and the plugin takes {expected}")]
    Option {
        /// The option.
        name: String,
        /// Type and value that are given.
        found: String,
        /// The type that is needed.
        expected: String,
    },
    /// A device is to run two partitions of one program.
    #[error("device {0} is named twice in the devices of a program: each partition needs a device of its own")]
    DeviceTwice(i32),
    /// A function that cannot be registered for custom calls.
    #[error("the function for custom calls @{name} cannot be registered: {reason}")]
    CustomCall {
        /// Its name.
        name: String,
        /// Why not, or what is missing.
        reason: String,
    },
    /// A device that is not there.
    #[error("there is no device {index}: the {platform} plugin has {count}")]
    NoDevice {
        /// The number that was asked for.
        index: usize,
        /// Devices of the client.
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

/// Code of an error for memory that is used up.
const RESOURCE_EXHAUSTED: u32 = 8;

impl XlaError {
    /// True if a device's memory is used up.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Plugin { code: RESOURCE_EXHAUSTED, .. })
    }
}
