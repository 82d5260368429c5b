//! Filters for resizing images.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ImageError;

/// Resampling filter, as defined by Pillow. In JSON it is Pillow's number, as in transformers' files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Filter {
    /// Nearest pixel (0 in Pillow).
    Nearest,
    /// Three-lobed windowed sinc with a support of 3 pixels (1).
    Lanczos,
    /// Triangle with a support of 1 pixel (2).
    Bilinear,
    /// Keys' cubic with a = −0.5 and a support of 2 pixels (3).
    Bicubic,
}

impl Filter {
    /// Filters and their names, by Pillow's numbers.
    const NAMED: [(Self, &str); 4] = [
        (Self::Nearest, "nearest"),
        (Self::Lanczos, "lanczos"),
        (Self::Bilinear, "bilinear"),
        (Self::Bicubic, "bicubic"),
    ];
}

impl From<Filter> for u8 {
    fn from(filter: Filter) -> Self {
        filter as u8
    }
}

impl TryFrom<u8> for Filter {
    type Error = ImageError;

    fn try_from(number: u8) -> Result<Self, ImageError> {
        let known = "0 nearest, 1 lanczos, 2 bilinear, 3 bicubic";
        let unknown = || ImageError::BadOption(format!("unknown filter {number}; known are {known}"));
        Self::NAMED.get(usize::from(number)).map(|(filter, _)| *filter).ok_or_else(unknown)
    }
}

impl FromStr for Filter {
    type Err = ImageError;

    fn from_str(name: &str) -> Result<Self, ImageError> {
        let known = "nearest, bilinear, bicubic, lanczos";
        let unknown = || ImageError::BadOption(format!("unknown filter `{name}`; known are {known}"));
        let found = Self::NAMED.iter().find(|(_, known)| known.eq_ignore_ascii_case(name));
        found.map(|(filter, _)| *filter).ok_or_else(unknown)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMED[usize::from(u8::from(*self))].1)
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;

    #[test]
    fn values_match_pillow() {
        let numbers: Vec<Filter> = serde_json::from_str("[0, 1, 2, 3]").unwrap();
        assert_eq!(numbers, [Filter::Nearest, Filter::Lanczos, Filter::Bilinear, Filter::Bicubic]);
        assert_eq!(serde_json::to_string(&numbers).unwrap(), "[0,1,2,3]");
        assert!(serde_json::from_str::<Filter>("4").is_err());
    }

    #[test]
    fn names() {
        assert_eq!("Bicubic".parse::<Filter>().unwrap(), Filter::Bicubic);
        assert!("cubic".parse::<Filter>().unwrap_err().to_string().contains("bicubic"));
    }
}
