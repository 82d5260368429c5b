//! Meshes of devices, and the distribution of arrays over them.

use burn::tensor::Tensor;
use grove_backend::{
    Backend,
    ops::{ShardingConstraint, Values, apply},
};
use std::fmt;

use crate::{Client, Device, Result, XlaError};

/// Devices in a grid with named axes: `jax.sharding.Mesh`.
#[derive(Clone, Debug)]
pub struct Mesh {
    devices: Vec<Device>,
    axes: Vec<(String, usize)>,
}

impl Mesh {
    /// Creates a mesh of devices of one client, in row-major order of the axes.
    ///
    /// # Errors
    /// If the sizes of the axes do not match the number of devices, if an axis has no name or the name of another axis, or if
    /// devices belong to two clients.
    pub fn new<'a>(devices: &[Device], axes: impl IntoIterator<Item = (&'a str, usize)>) -> Result<Self> {
        let axes: Vec<(String, usize)> = axes.into_iter().map(|(name, size)| (name.to_owned(), size)).collect();
        let positions = axes.iter().try_fold(1_usize, |positions, (_, size)| positions.checked_mul(*size));
        let mesh = Self { devices: devices.to_vec(), axes };
        let refused = |reason: String| Err(XlaError::Mesh { mesh: mesh.to_string(), reason });
        let named = |(i, (name, _)): (usize, &(String, usize))| {
            !name.is_empty() && mesh.axes[..i].iter().all(|(other, _)| other != name)
        };
        if !mesh.axes.iter().enumerate().all(named) {
            return refused("two axes have the same name".into());
        }
        if positions != Some(devices.len()) || devices.is_empty() {
            let positions = positions.map_or_else(|| "too many".to_owned(), |positions| positions.to_string());
            return refused(format!("it has {positions} positions, but there are {} devices", devices.len()));
        }
        if devices.iter().any(|device| !device.client().is(&devices[0].client())) {
            return refused("its devices belong to two clients".into());
        }
        Ok(mesh)
    }

    /// Creates a mesh of one device.
    pub(crate) fn of_one(device: &Device) -> Self {
        Self { devices: vec![device.clone()], axes: vec![] }
    }

    /// Returns the devices, in row-major order.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns the axes and their sizes.
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

    /// For each axis of an array, returns the index of the device's part and the number of parts.
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

    /// Returns the shape of the part of an array on each device.
    ///
    /// # Errors
    /// If the specification names an axis that the mesh lacks, or an axis twice, if it has more axes than the array, or if it
    /// does not divide an axis.
    pub(crate) fn part_dims(&self, spec: &PartitionSpec, dims: &[usize]) -> std::result::Result<Vec<usize>, String> {
        if spec.0.len() > dims.len() {
            return Err(format!("{spec} has {} axes, but the array has {}", spec.0.len(), dims.len()));
        }
        let names: Vec<&String> = spec.0.iter().flatten().collect();
        for (i, name) in names.iter().enumerate() {
            if self.axis_size(name).is_none() {
                return Err(format!("{spec} names the axis \"{name}\", which the mesh {self} does not have"));
            }
            if names[..i].contains(name) {
                return Err(format!("{spec} names the axis \"{name}\" twice"));
            }
        }
        let parts = self.part(spec, dims.len(), 0).into_iter().map(|(_, parts)| parts);
        let size = |(axis, (dim, parts)): (usize, (&usize, usize))| match dim % parts {
            0 => Ok(dim / parts),
            _ => {
                Err(format!("axis {axis} of {dim} elements is not divisible by {parts}, as {spec} requires on {self}"))
            }
        };
        dims.iter().zip(parts).enumerate().map(size).collect()
    }

    /// Returns the ranges of the axes of an array's part on a device.
    pub(crate) fn block(&self, spec: &PartitionSpec, dims: &[usize], device: usize) -> Vec<[usize; 2]> {
        let range = |(dim, (index, parts)): (&usize, (usize, usize))| {
            let size = dim / parts;
            [index * size, (index + 1) * size]
        };
        dims.iter().zip(self.part(spec, dims.len(), device)).map(range).collect()
    }

    /// Declares the mesh in the text of a program.
    pub(crate) fn declaration(&self) -> String {
        let axes: Vec<String> = self.axes.iter().map(|(name, size)| format!("{name:?}={size}")).collect();
        format!("sdy.mesh @mesh = <[{}]>", axes.join(", "))
    }

    /// Returns the sharding attribute of an argument or a result with `rank` axes.
    pub(crate) fn attribute(&self, spec: &PartitionSpec, rank: usize) -> String {
        format!("sdy.sharding = #sdy.sharding{}", self.sharding(spec, rank))
    }

    /// Returns the sharding of an array with `rank` axes in Shardy's syntax.
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
    /// Formats as `(data: 2, model: 4)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes.iter().map(|(name, size)| format!("{name}: {size}")).collect();
        write!(f, "({})", axes.join(", "))
    }
}

/// Distribution of an array over a mesh: for each axis of the array, the mesh axes over which it is split; none if it is not
/// split. Trailing axes may be omitted and are not split. `jax.sharding.PartitionSpec`.
///
/// ```
/// use grove_xla::PartitionSpec;
/// assert_eq!(PartitionSpec::new([None, Some("model")]).to_string(), "P(None, \"model\")");
/// assert_eq!(PartitionSpec::new([Some("data,model")]).to_string(), "P((\"data\", \"model\"))");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PartitionSpec(Vec<Vec<String>>);

impl PartitionSpec {
    /// Creates a specification. Comma-separated names are several mesh axes, the first of which varies slowest.
    pub fn new<'a>(axes: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let names = |axis: Option<&str>| {
            axis.map_or(vec![], |names| names.split(',').map(|name| name.trim().to_owned()).collect())
        };
        Self(axes.into_iter().map(names).collect())
    }

    /// Returns the specification of a replicated array: each device has a whole copy.
    pub fn replicated() -> Self {
        Self::default()
    }

    /// Returns true if no axis is split.
    pub fn is_replicated(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }
}

impl From<ShardingConstraint> for PartitionSpec {
    fn from(constraint: ShardingConstraint) -> Self {
        Self(constraint.axes)
    }
}

/// Constrains the sharding of an array inside a function, and of its gradient: `jax.lax.with_sharding_constraint`. On other
/// devices, and in functions mapped by [`vmap`](grove_compile::vmap()), returns the array unchanged.
///
/// If the mesh lacks an axis of the specification, or an axis does not divide the array, the program is rejected when it is
/// compiled.
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
