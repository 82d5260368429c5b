//! New projects that depend on grove.

use grove::files::create_directory;
use std::{fmt, fs};

use crate::{prelude::*, program::is_free};

/// Profile of a new project, also in docs/library.md.
const PROFILE: &str = include_str!("../template/profile.toml");

/// Program of a new project, also an example of tests/facade.
const MAIN: &str = include_str!("../template/main.rs");

/// Cargo settings of grove, which a project with CUDA also needs.
const CARGO_CONFIG: &str = include_str!("../template/config.toml");

/// Options of `grove new`.
#[derive(Args, Debug)]
pub struct Options {
    /// Directory to create; its last component is the name of the package
    pub path: PathBuf,

    /// Checkout or git URL of grove to depend on [default: the checkout from which this program was built]
    #[arg(long, value_name = "PATH|URL")]
    pub grove: Option<String>,
}

/// Creates a project: Cargo.toml with the dependency and its profile, and a src/main.rs that trains a tiny model. The files are
/// written to a temporary directory beside the target, which is then renamed.
pub fn create(options: &Options) -> Result<(), Exit> {
    let (path, named) = (&options.path, options.path.display());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let valid = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
    if !valid || ["grove", "grove-nn"].contains(&name) {
        return Err(usage(format!(
            "'{name}' cannot be the name of a package that depends on grove: give a path whose last component begins with an \
             ASCII letter and has only ASCII letters, digits, - and _, such as my-model"
        )));
    }
    if !is_free(path)? {
        return Err(failure(format!("{named} is not empty: name another directory")));
    }
    let source = Source::of(options.grove.as_deref())?;
    let mut manifest = manifest(name, &source);
    let above = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    if above.ancestors().skip(1).any(|above| above.join("Cargo.toml").is_file()) {
        manifest += "\n# Profiles count at the root of a workspace only.\n[workspace]\n";
    }
    create_directory(path, |project| {
        fs::create_dir(project.join("src"))?;
        fs::create_dir(project.join(".cargo"))?;
        fs::write(project.join(".cargo/config.toml"), CARGO_CONFIG)?;
        fs::write(project.join("Cargo.toml"), manifest)?;
        // The versions that grove was tested with. A shared target directory has already compiled them.
        if let Some(lock) = source.lock() {
            fs::write(project.join("Cargo.lock"), lock)?;
        }
        fs::write(project.join(".gitignore"), "/target\n")?;
        fs::write(project.join("src/main.rs"), MAIN)
    })?;
    write_line(&format!(
        "{named}: a project that depends on grove; `cargo run` there trains a tiny model. Its first build compiles grove's backends: \
         some ten minutes on two cores"
    ))
}

/// Source of the dependency on grove.
enum Source {
    /// Path of a checkout.
    Path(PathBuf),
    /// URL of a git repository.
    Git(String),
}

impl Source {
    fn of(grove: Option<&str>) -> Result<Self, Exit> {
        let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let path = match grove {
            Some(url) if url.contains("://") || url.starts_with("git@") => return Ok(Self::Git(url.into())),
            Some(path) => PathBuf::from(path),
            None if built_from.join("Cargo.toml").is_file() => built_from,
            None => {
                return Err(failure(format!(
                    "the checkout that this program was built from, {}, no longer exists: name a checkout or a git repository with --grove",
                    built_from.display()
                )));
            }
        };
        match path.canonicalize().ok().filter(|path| path.join("Cargo.toml").is_file()) {
            Some(path) => Ok(Self::Path(path)),
            None => Err(failure(format!("{} is not a checkout of grove: it has no Cargo.toml", path.display()))),
        }
    }

    /// Returns the content of the checkout's Cargo.lock.
    fn lock(&self) -> Option<String> {
        let Self::Path(path) = self else { return None };
        fs::read_to_string(path.join("Cargo.lock")).ok()
    }
}

impl fmt::Display for Source {
    /// Writes the source as a field of a dependency in Cargo.toml.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "path = {}", json!(path.to_string_lossy())),
            Self::Git(url) => write!(f, "git = {}", json!(url)),
        }
    }
}

/// Returns the Cargo.toml of a project, with the profile of docs/library.md.
fn manifest(name: &str, source: &Source) -> String {
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\ngrove-nn = {{ {source} }}\n\n\
         # Debug builds at release speed: see docs/library.md of grove, \"As a dependency\".\n{PROFILE}"
    )
}
