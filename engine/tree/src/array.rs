use burn::tensor::{BasicOps, Bool, DType, Float, Int, Tensor};
use grove_backend::{AnyTensor, Backend};
use std::fmt;

use crate::{AnyArray, Node, Path, Tree, Visitor, leaf_name};

/// The kinds of leaves: [`Float`], [`Int`] and [`Bool`].
pub trait Kind: Clone + fmt::Debug + Send + Sync + 'static {
    /// Burn's kind on a backend, which is always `Self`.
    type On<B: Backend>: BasicOps<B>;
    /// Default dtype of a leaf.
    const DTYPE: DType;

    /// Erases rank and kind.
    fn erase<B: Backend, const D: usize>(tensor: Tensor<B, D, Self::On<B>>) -> AnyTensor<B>;
    /// Reverses [`erase`](Self::erase); `None` if the tensor is of another kind.
    fn restore<B: Backend, const D: usize>(tensor: AnyTensor<B>) -> Option<Tensor<B, D, Self::On<B>>>;
}

impl Kind for Float {
    type On<B: Backend> = Float;
    const DTYPE: DType = DType::F32;

    fn erase<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> AnyTensor<B> {
        tensor.into()
    }

    fn restore<B: Backend, const D: usize>(tensor: AnyTensor<B>) -> Option<Tensor<B, D>> {
        tensor.into_float()
    }
}

impl Kind for Int {
    type On<B: Backend> = Int;
    const DTYPE: DType = DType::I64;

    fn erase<B: Backend, const D: usize>(tensor: Tensor<B, D, Int>) -> AnyTensor<B> {
        tensor.into()
    }

    fn restore<B: Backend, const D: usize>(tensor: AnyTensor<B>) -> Option<Tensor<B, D, Int>> {
        tensor.into_int()
    }
}

impl Kind for Bool {
    type On<B: Backend> = Bool;
    const DTYPE: DType = DType::Bool(burn::tensor::BoolStore::Native);

    fn erase<B: Backend, const D: usize>(tensor: Tensor<B, D, Bool>) -> AnyTensor<B> {
        tensor.into()
    }

    fn restore<B: Backend, const D: usize>(tensor: AnyTensor<B>) -> Option<Tensor<B, D, Bool>> {
        tensor.into_bool()
    }
}

/// A leaf of a tree: an array of rank `D`.
///
/// If present, it holds a tensor. If absent, it holds only its shape and dtype. Absent leaves allow partitions,
/// skeletons for loading, and parameter counts of models that exceed the machine's memory, all with the same struct.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let weight = Array::<B, 2>::new(Tensor::ones([3, 4], &Default::default()));
/// assert_eq!((weight.to_string().as_str(), weight.val().sum().into_scalar()), ("f32[3,4]", 12.0));
/// assert!(!Array::<B, 2>::absent([3, 4]).is_present());
/// ```
#[derive(Clone)]
pub struct Array<B: Backend, const D: usize, K: Kind = Float> {
    state: State<B, D, K>,
}

#[derive(Clone)]
enum State<B: Backend, const D: usize, K: Kind> {
    Present(Tensor<B, D, K::On<B>>),
    Absent([usize; D], DType),
}

// A separate `impl` block: with `K::On<B>`, as in the other methods, the compiler cannot infer `K`.
impl<B: Backend, const D: usize, K: Kind<On<B> = K> + BasicOps<B>> Array<B, D, K> {
    /// Creates a leaf from a tensor, with the tensor's rank and kind.
    pub fn new(tensor: Tensor<B, D, K>) -> Self {
        tensor.into()
    }
}

impl<B: Backend, const D: usize, K: Kind> Array<B, D, K> {
    /// Creates a leaf without a value, with the kind's default dtype (f32, i64 or bool).
    pub fn absent(shape: [usize; D]) -> Self {
        Self::absent_of(shape, K::DTYPE)
    }

    /// Creates a leaf without a value, with the given dtype.
    pub fn absent_of(shape: [usize; D], dtype: DType) -> Self {
        Self { state: State::Absent(shape, dtype) }
    }

    /// Returns the tensor. Copies a handle, not the values.
    ///
    /// # Panics
    /// If the leaf is absent. [`get`](Self::get) does not panic.
    #[track_caller]
    pub fn val(&self) -> Tensor<B, D, K::On<B>> {
        match &self.state {
            State::Present(tensor) => tensor.clone(),
            State::Absent(shape, dtype) => panic!(
                "this leaf, {}, is absent: the model is a skeleton or one part of a partition; load weights into it, \
                 or `combine` the parts first",
                crate::dtype::type_name(shape, *dtype)
            ),
        }
    }

    /// Returns the tensor; `None` if the leaf is absent.
    pub fn get(&self) -> Option<&Tensor<B, D, K::On<B>>> {
        match &self.state {
            State::Present(tensor) => Some(tensor),
            State::Absent(..) => None,
        }
    }

    /// Consumes the leaf and returns its tensor; `None` if the leaf is absent. If this was the only handle, the next
    /// operation can reuse the tensor's memory.
    pub fn into_val(self) -> Option<Tensor<B, D, K::On<B>>> {
        match self.state {
            State::Present(tensor) => Some(tensor),
            State::Absent(..) => None,
        }
    }

    /// Returns true if the leaf holds a tensor.
    pub fn is_present(&self) -> bool {
        self.get().is_some()
    }

    /// Returns the shape.
    pub fn shape(&self) -> [usize; D] {
        match &self.state {
            State::Present(tensor) => tensor.dims(),
            State::Absent(shape, _) => *shape,
        }
    }

    /// Returns the dtype of the elements.
    pub fn dtype(&self) -> DType {
        match &self.state {
            State::Present(tensor) => tensor.dtype(),
            State::Absent(_, dtype) => *dtype,
        }
    }

    /// Erases rank and kind.
    pub fn into_any(self) -> AnyArray<B> {
        match self.state {
            State::Present(tensor) => AnyArray::present(K::erase(tensor)),
            State::Absent(shape, dtype) => AnyArray::absent(shape, dtype),
        }
    }

    /// Reverses [`into_any`](Self::into_any); `None` if the rank differs, or the value is of another kind.
    pub fn from_any(leaf: AnyArray<B>) -> Option<Self> {
        let shape: [usize; D] = leaf.shape().try_into().ok()?;
        let dtype = leaf.dtype();
        match leaf.into_value() {
            Some(value) => K::restore::<B, D>(value).map(Self::from),
            None => Some(Self::absent_of(shape, dtype)),
        }
    }

    /// Like [`from_any`](Self::from_any), for the result of a function that was mapped over a tree. Panics if rank or
    /// kind changed.
    fn replaced(path: &Path, expected: ([usize; D], DType), leaf: AnyArray<B>) -> Self {
        let found = (leaf.shape().to_vec(), leaf.dtype());
        Self::from_any(leaf).unwrap_or_else(|| {
            let [expected, found] = [(&expected.0[..], expected.1), (&found.0[..], found.1)]
                .map(|(shape, dtype)| crate::dtype::type_name(shape, dtype));
            let leaf = leaf_name("leaf", path.as_str());
            panic!(
                "a function mapped over a tree turned the {leaf}, {expected}, into {found}: it must keep rank and kind"
            )
        })
    }
}

impl<B: Backend, const D: usize, K: Kind> Tree<B> for Array<B, D, K> {
    type On<C: Backend> = Array<C, D, K>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        visitor.enter(path, Node::Leaf);
        visitor.leaf(path, &self.clone().into_any());
        visitor.exit(path, Node::Leaf);
    }

    fn map(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<B>) -> Self {
        self.lift(path, f)
    }

    fn lift<C: Backend>(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<C>) -> Array<C, D, K> {
        let expected = (self.shape(), self.dtype());
        Array::replaced(path, expected, f(path, self.into_any()))
    }
}

/// Formats as `f32[3,4]`, present or absent.
impl<B: Backend, const D: usize, K: Kind> fmt::Display for Array<B, D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::dtype::type_name(&self.shape(), self.dtype()))
    }
}

/// Type and shape, such as `f32[3,4]`.
impl<B: Backend, const D: usize, K: Kind> fmt::Debug for Array<B, D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<B: Backend, const D: usize, K: Kind> From<Tensor<B, D, K::On<B>>> for Array<B, D, K> {
    fn from(tensor: Tensor<B, D, K::On<B>>) -> Self {
        Self { state: State::Present(tensor) }
    }
}
