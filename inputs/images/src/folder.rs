//! Image data sets with one folder per class.

use std::path::{Path, PathBuf};

use crate::error::{ImageError, Result};
use grove_files::FileError;

/// Extensions of image files. They only distinguish images from other files in a folder; [`open`](crate::open)
/// detects the format by content.
pub const EXTENSIONS: &[&str] = &["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"];

/// Maximum depth of the search.
const MAX_DEPTH: usize = 32;

/// A data set laid out as `dir/class/…/image.jpg`, like torchvision's and Hugging Face's `imagefolder`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFolder {
    /// Names of the classes, sorted. The index of a name is the class index.
    pub classes: Vec<String>,
    /// Images with their class indices: class by class, sorted by path within a class.
    pub samples: Vec<(PathBuf, usize)>,
    /// Folders without images, sorted. They are not classes.
    pub empty: Vec<PathBuf>,
}

impl ImageFolder {
    /// Searches a directory. Hidden files and folders are skipped, as are files without an image extension. Folders
    /// without images are listed in [`empty`](Self::empty).
    ///
    /// # Errors
    /// The directory does not exist or has no folders, fewer than two of its folders have images, or the name of a
    /// class is not UTF-8.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let wrong = |reason: String| ImageError::Folder { directory: dir.to_owned(), reason };
        if dir.is_file() {
            return Err(wrong("it is a file; give the directory that has a folder for each class".into()));
        }
        let folders: Vec<PathBuf> = entries(dir)?.into_iter().filter(|path| path.is_dir()).collect();
        if folders.is_empty() {
            return Err(wrong("it has no folders; put the images of each class into a folder with its name".into()));
        }
        let mut found = Self { classes: Vec::new(), samples: Vec::new(), empty: Vec::new() };
        for folder in folders {
            let images = files(&folder)?;
            if images.is_empty() {
                found.empty.push(folder);
                continue;
            }
            let name = folder.file_name().and_then(|name| name.to_str());
            let name =
                name.ok_or_else(|| wrong(format!("the name of {} is not UTF-8; rename it", folder.display())))?;
            found.samples.extend(images.into_iter().map(|image| (image, found.classes.len())));
            found.classes.push(name.to_owned());
        }
        let kinds = EXTENSIONS.join(", ");
        match (found.classes.as_slice(), found.empty.as_slice()) {
            ([], _) => Err(wrong(format!("none of its folders has images ({kinds})"))),
            ([only], []) => Err(wrong(format!(
                "`{only}` is its only class, but a classifier needs two; is this one class's folder?"
            ))),
            ([only], [empty, ..]) => Err(wrong(format!(
                "`{only}` is its only class, but a classifier needs two: {} has no images ({kinds})",
                empty.display()
            ))),
            _ => Ok(found),
        }
    }
}

/// Returns the file itself, or all images in a directory and its subdirectories, sorted.
///
/// # Errors
/// The path does not exist, or a directory cannot be read.
pub fn files(path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let path = path.as_ref();
    let metadata = std::fs::metadata(path).map_err(FileError::io("open", path))?;
    let mut found = Vec::new();
    if metadata.is_dir() {
        search(path, 0, &mut found)?;
        found.sort();
    } else {
        found.push(path.to_owned());
    }
    Ok(found)
}

fn search(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    for path in entries(dir)? {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if path.is_dir() {
            // A link to a parent folder would cause an endless search.
            if depth < MAX_DEPTH && !path.is_symlink() {
                search(&path, depth + 1, found)?;
            }
        } else if EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension)) {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the entries of a directory that are not hidden, sorted.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let failed = || FileError::io("read the directory", dir);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"x").unwrap();
        }
        dir
    }

    #[test]
    fn classes_and_images_are_sorted() {
        let dir =
            tree(&["dog/b.png", "dog/a/z.JPG", "cat/1.webp", "dog/notes.txt", ".git/x.png", "cat/.h.png", "top.png"]);
        let found = ImageFolder::open(dir.path()).unwrap();
        assert_eq!(found.classes, ["cat", "dog"]);
        let names = found
            .samples
            .iter()
            .map(|(path, class)| (path.strip_prefix(dir.path()).unwrap().to_str().unwrap(), *class));
        assert_eq!(names.collect::<Vec<_>>(), [("cat/1.webp", 0), ("dog/a/z.JPG", 1), ("dog/b.png", 1)]);
        assert_eq!(files(dir.path().join("top.png")).unwrap(), [dir.path().join("top.png")]);
        assert_eq!(files(dir.path()).unwrap().len(), 4);
    }

    #[test]
    fn folders_without_images_are_not_classes() {
        let dir = tree(&["cat/a.png", "dog/notes.txt", "emu/deep/.x.png", "owl/c.png"]);
        let found = ImageFolder::open(dir.path()).unwrap();
        assert_eq!(found.classes, ["cat", "owl"]);
        assert_eq!(found.samples.iter().map(|(_, class)| *class).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(found.empty, ["dog", "emu"].map(|name| dir.path().join(name)));
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = |files: &[&str]| ImageFolder::open(tree(files).path()).unwrap_err().to_string();
        assert!(message(&["a.png"]).contains("no folders"));
        assert!(message(&["cat/a.png"]).contains("`cat` is its only class"));
        let message_of_empty = message(&["cat/a.png", "dog/notes.txt"]);
        assert!(message_of_empty.contains("`cat` is its only class") && message_of_empty.contains("dog has no images"));
        assert!(message(&["cat/a.txt", "dog/notes.txt"]).contains("none of its folders has images"));
        let dir = tree(&["a.png"]);
        assert!(ImageFolder::open(dir.path().join("a.png")).unwrap_err().to_string().contains("it is a file"));
        assert!(matches!(ImageFolder::open(dir.path().join("none")), Err(ImageError::Io(_))));
    }
}
