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

impl From<Filter> for u8 {
    fn from(filter: Filter) -> Self {
        match filter {
            Filter::Nearest => 0,
            Filter::Lanczos => 1,
            Filter::Bilinear => 2,
            Filter::Bicubic => 3,
        }
    }
}

impl TryFrom<u8> for Filter {
    type Error = ImageError;

    fn try_from(number: u8) -> Result<Self, ImageError> {
        Ok(match number {
            0 => Self::Nearest,
            1 => Self::Lanczos,
            2 => Self::Bilinear,
            3 => Self::Bicubic,
            _ => {
                let known = "0 nearest, 1 lanczos, 2 bilinear, 3 bicubic";
                return Err(ImageError::BadOption(format!("unknown filter {number}; known are {known}")));
            }
        })
    }
}

impl FromStr for Filter {
    type Err = ImageError;

    fn from_str(name: &str) -> Result<Self, ImageError> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "nearest" => Self::Nearest,
            "lanczos" => Self::Lanczos,
            "bilinear" => Self::Bilinear,
            "bicubic" => Self::Bicubic,
            _ => {
                let known = "nearest, bilinear, bicubic, lanczos";
                return Err(ImageError::BadOption(format!("unknown filter `{name}`; known are {known}")));
            }
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nearest => "nearest",
            Self::Lanczos => "lanczos",
            Self::Bilinear => "bilinear",
            Self::Bicubic => "bicubic",
        })
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
