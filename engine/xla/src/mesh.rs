//! Meshes of devices, and how arrays lie on them.

use burn::tensor::Tensor;
use grove_backend::{
    Backend,
    ops::{ShardingConstraint, Values, apply},
};
use std::fmt;

use crate::{Client, Device, Result, XlaError};

/// Devices in a grid whose axes have names: `jax.sharding.Mesh`.
#[derive(Clone, Debug)]
pub struct Mesh {
    devices: Vec<Device>,
    axes: Vec<(String, usize)>,
}

impl Mesh {
    /// A mesh of devices of one client, in row-major order of the axes.
    ///
    /// # Errors
    /// The sizes of the axes are not those of so many devices; an axis has no name, or that of another one; or devices are of two
    /// clients.
    pub fn new<'a>(devices: &[Device], axes: impl IntoIterator<Item = (&'a str, usize)>) -> Result<Self> {
        let axes: Vec<(String, usize)> = axes.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
        let places = axes.iter().try_fold(1_usize, |places, (_, size)| places.checked_mul(*size));
        let mesh = Self { devices: devices.to_vec(), axes };
        let refused = |reason: String| Err(XlaError::Mesh { mesh: mesh.to_string(), reason });
        let named = |(i, (name, _)): (usize, &(String, usize))| {
            !name.is_empty() && mesh.axes[..i].iter().all(|(other, _)| other != name)
        };
        if !mesh.axes.iter().enumerate().all(named) {
            return refused("each axis needs a name of its own".into());
        }
        if places != Some(devices.len()) || devices.is_empty() {
            let places = places.map_or_else(|| "too many".to_owned(), |places| places.to_string());
            return refused(format!("it has {places} places, and there are {} devices", devices.len()));
        }
        if devices.iter().any(|device| !device.client().is(&devices[0].client())) {
            return refused("its devices are of two clients".into());
        }
        Ok(mesh)
    }

    /// A mesh of one device.
    pub(crate) fn of_one(device: &Device) -> Self {
        Self { devices: vec![device.clone()], axes: vec![] }
    }

    /// The devices, in row-major order.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The axes and their sizes.
    pub fn axes(&self) -> &[(String, usize)] {
        &self.axes
    }

    pub(crate) fn client(&self) -> Client {
        self.devices[0].client()
    }

    /// Returns the size of an axis.
    pub fn axis_size(&self, name: &str) -> Option<usize> {
        self.axes.iter().find(|(axis, _)| axis == name).map(|(_, size)| *size)
    }

    /// Numbers of the parts of an array's axes that a device has: for each axis of the array, which of how many.
    fn part(&self, spec: &PartitionSpec, rank: usize, device: usize) -> Vec<(usize, usize)> {
        let mut rest = device;
        let mut place = vec![0; self.axes.len()];
        for (i, (_, size)) in self.axes.iter().enumerate().rev() {
            place[i] = rest % size;
            rest /= size;
        }
        let at = |name: &String| self.axes.iter().position(|(axis, _)| axis == name).map_or(0, |i| place[i]);
        let of_axis = |axis: usize| {
            let names = spec.0.get(axis).map_or(&[][..], Vec::as_slice);
            names.iter().fold((0, 1), |(index, parts), name| {
                let size = self.axis_size(name).unwrap_or(1);
                (index * size + at(name), parts * size)
            })
        };
        (0..rank).map(of_axis).collect()
    }

    /// Sizes of the parts that devices have of an array.
    ///
    /// # Errors
    /// The specification names an axis that the mesh lacks, or one twice; has more axes than the array; or does not divide one.
    pub(crate) fn part_dims(&self, spec: &PartitionSpec, dims: &[usize]) -> std::result::Result<Vec<usize>, String> {
        if spec.0.len() > dims.len() {
            return Err(format!("{spec} has {} axes, and the array has {}", spec.0.len(), dims.len()));
        }
        let names: Vec<&String> = spec.0.iter().flatten().collect();
        for (i, name) in names.iter().enumerate() {
            if self.axis_size(name).is_none() {
                return Err(format!("{spec} names the axis \"{name}\", and the mesh is {self}"));
            }
            if names[..i].contains(name) {
                return Err(format!("{spec} names the axis \"{name}\" twice"));
            }
        }
        let parts = self.part(spec, dims.len(), 0).into_iter().map(|(_, parts)| parts);
        let size = |(axis, (dim, parts)): (usize, (&usize, usize))| match dim % parts {
            0 => Ok(dim / parts),
            _ => Err(format!("axis {axis} of {dim} elements is not divided by {parts}, as {spec} asks for on {self}")),
        };
        dims.iter().zip(parts).enumerate().map(size).collect()
    }

    /// Of an array's part on a device, the ranges of its axes.
    pub(crate) fn block(&self, spec: &PartitionSpec, dims: &[usize], device: usize) -> Vec<[usize; 2]> {
        let range = |(dim, (index, parts)): (&usize, (usize, usize))| {
            let size = dim / parts;
            [index * size, (index + 1) * size]
        };
        dims.iter().zip(self.part(spec, dims.len(), device)).map(range).collect()
    }

    /// The mesh in the text of a program.
    pub(crate) fn declaration(&self) -> String {
        let axes: Vec<String> = self.axes.iter().map(|(name, size)| format!("{name:?}={size}")).collect();
        format!("sdy.mesh @mesh = <[{}]>", axes.join(", "))
    }

    /// An attribute of an argument or a result of so many axes.
    pub(crate) fn attribute(&self, spec: &PartitionSpec, rank: usize) -> String {
        format!("sdy.sharding = #sdy.sharding{}", self.sharding(spec, rank))
    }

    /// The place of an array of so many axes, as Shardy writes it.
    pub(crate) fn sharding(&self, spec: &PartitionSpec, rank: usize) -> String {
        let of_axis = |axis: usize| {
            let names = spec.0.get(axis).map_or(&[][..], Vec::as_slice);
            format!("{{{}}}", names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "))
        };
        let axes: Vec<String> = (0..rank).map(of_axis).collect();
        format!("<@mesh, [{}]>", axes.join(", "))
    }
}

impl fmt::Display for Mesh {
    /// As `(data: 2, model: 4)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes.iter().map(|(name, size)| format!("{name}: {size}")).collect();
        write!(f, "({})", axes.join(", "))
    }
}

/// The parts of an array on a mesh: for each of its axes the axes of the mesh over which it is split, none where it is whole. Axes
/// that are not mentioned are whole. `jax.sharding.PartitionSpec`.
///
/// ```
/// use grove_xla::PartitionSpec;
/// assert_eq!(PartitionSpec::new([None, Some("model")]).to_string(), "P(None, \"model\")");
/// assert_eq!(PartitionSpec::new([Some("data,model")]).to_string(), "P((\"data\", \"model\"))");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PartitionSpec(Vec<Vec<String>>);

impl PartitionSpec {
    /// A specification. Names with commas between them are of several axes, the first of which varies slowest.
    pub fn new<'a>(axes: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let names = |axis: Option<&str>| {
            axis.map_or(vec![], |names| names.split(',').map(|name| name.trim().to_owned()).collect())
        };
        Self(axes.into_iter().map(names).collect())
    }

    /// A copy of the whole array on each device.
    pub fn replicated() -> Self {
        Self::default()
    }

    /// True if no axis is split.
    pub fn is_replicated(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }
}

impl From<ShardingConstraint> for PartitionSpec {
    fn from(constraint: ShardingConstraint) -> Self {
        Self(constraint.axes)
    }
}

/// Makes an array inside of a function lie on a mesh as specified, and its gradient too: `jax.lax.with_sharding_constraint`. On other
/// devices, and in functions that [`vmap`](grove_compile::vmap()) maps, it is the array as it is.
///
/// A program whose mesh lacks an axis of the specification, or has one that does not divide the array, is refused when it is compiled.
///
/// # Panics
/// If the specification has more axes than the array.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_xla::{PartitionSpec, with_sharding_constraint};
/// # type B = grove_backend::Flex;
/// fn hidden<B: grove_backend::Backend>(x: Tensor<B, 2>, weight: Tensor<B, 2>) -> Tensor<B, 2> {
///     with_sharding_constraint(x.matmul(weight), &PartitionSpec::new([Some("data"), Some("model")]))
/// }
/// # let x = Tensor::<B, 2>::ones([2, 2], &Default::default());
/// # assert_eq!(hidden(x.clone(), x).into_data().to_vec::<f32>().unwrap(), [2.0; 4]);
/// ```
#[track_caller]
pub fn with_sharding_constraint<B: Backend, const D: usize>(x: Tensor<B, D>, spec: &PartitionSpec) -> Tensor<B, D> {
    apply(ShardingConstraint { axes: spec.0.clone() }, Values::default().with(x)).take_tensor(0)
}

impl fmt::Display for PartitionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = |names: &Vec<String>| match &names[..] {
            [] => "None".to_owned(),
            [name] => format!("{name:?}"),
            names => format!("({})", names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")),
        };
        write!(f, "P({})", self.0.iter().map(axis).collect::<Vec<_>>().join(", "))
    }
}
