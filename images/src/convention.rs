//! Where the libraries disagree.

/// Whose way a preprocessor goes where torchvision and transformers differ. It shows in single grey levels, and in
/// crops that lie one pixel aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Convention {
    /// torchvision's transforms and timm's, which leave resizing to Pillow: weights of 22 binary places; the direction
    /// in which much more is taken away first (as of Pillow 13). When an odd number of pixels is cropped away, half a
    /// pixel goes to the even side.
    #[default]
    Torchvision,
    /// transformers' image processors as of version 5, which resize with torch: weights of 16 bits, across first.
    /// Half a pixel goes up and left.
    Transformers,
}
