//! The ResNet model. Papers: "Deep Residual Learning for Image Recognition" (He et al., 2015), "Wide Residual Networks"
//! (Zagoruyko and Komodakis, 2016), "Aggregated Residual Transformations for Deep Neural Networks" (Xie et al., 2017).
//! References: torchvision's `models/resnet.py`, transformers' `models/resnet/modeling_resnet.py`.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Backend, Conv2dOptions, Pool2dOptions, to_dtype};
use grove_layers::{Activation, BatchNorm, BatchStats, ConvBn, Linear, global_average_pool, loss, max_pool};
use grove_tree::{Init, Key, Tree, paths};
use grove_weights::NameMap;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, iter};

use super::{LayerType, Naming, ResNetConfig, Stem, config::OTHER_NAMES, published_names};
use crate::{Pretrained, PretrainedConfig, error::Result, pretrained::fields_of};

/// ResNet, wide ResNet or ResNeXt with an optional classification head.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_models::{Pretrained, ResNet, ResNetConfig, resnet::{Naming, Stem}};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let sizes = ResNetConfig { embedding_size: 8, hidden_sizes: vec![8, 16], depths: vec![1, 1], ..ResNetConfig::default() };
/// let config = ResNetConfig { stem: Stem::Small, naming: Naming::Torchvision, ..sizes }.with_labels(["cat", "dog"]);
/// let model = ResNet::<B>::init(&config, Key::new(0), &device)?;
/// assert_eq!(model.forward(Tensor::ones([4, 3, 32, 32], &device)).dims(), [4, 2]); // logits
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Tree, Clone, Debug)]
pub struct ResNet<B: Backend> {
    /// First convolution.
    pub stem: ConvBn<B>,
    /// Activation of the stem.
    #[tree(static)]
    pub activation: Activation,
    /// Max pooling of the stem; `None` for a small stem.
    #[tree(static)]
    pub maxpool: Option<Pool2dOptions>,
    /// Blocks of each stage. Each stage halves height and width, except the first unless `downsample_in_first_stage`.
    pub stages: Vec<Vec<ResNetBlock<B>>>,
    /// Classification head over the pooled features, `[channels, classes]`; `None` if the configuration has no labels.
    pub head: Option<Linear<B>>,
    /// Configuration.
    #[tree(static)]
    pub config: ResNetConfig,
}

/// Intermediate features of a network.
#[derive(Clone, Debug)]
pub struct Features<B: Backend> {
    /// Output of the stem, `[b, embedding_size, h/4, w/4]`; with a small stem `[b, embedding_size, h, w]`.
    pub stem: Tensor<B, 4>,
    /// Output of each stage, `[b, hidden_size, h', w']`.
    pub stages: Vec<Tensor<B, 4>>,
    /// Global average of the last stage, `[b, hidden_size]`: the input of the head.
    pub pooled: Tensor<B, 2>,
}

impl<B: Backend> ResNet<B> {
    /// Returns the logits of the classes, or the pooled features if the network has no head. Uses the running
    /// statistics.
    ///
    /// # Shapes
    /// - pixels `[b, num_channels, h, w]`, normalised as in training, of any floating-point dtype
    /// - output `[b, classes]`, in the weights' dtype
    #[track_caller]
    pub fn forward(&self, pixels: Tensor<B, 4>) -> Tensor<B, 2> {
        self.forward_with(pixels, &mut BatchStats::Running)
    }

    /// Computes [`forward`](Self::forward) with the batch's own statistics. Also returns the model with updated running
    /// statistics.
    ///
    /// # Panics
    /// If a batch norm gets a single value per channel: a batch of one image, at a stage of one pixel.
    #[track_caller]
    pub fn train(&self, pixels: Tensor<B, 4>) -> (Tensor<B, 2>, Self) {
        let mut stats = BatchStats::Batch(Vec::new());
        let logits = self.forward_with(pixels, &mut stats);
        let mut successor = self.clone();
        stats.update(successor.norms_mut());
        (logits, successor)
    }

    /// Returns intermediate features for detection, segmentation or retrieval, using the running statistics. Pixels are
    /// as in [`forward`](Self::forward).
    #[track_caller]
    pub fn features(&self, pixels: Tensor<B, 4>) -> Features<B> {
        let stats = &mut BatchStats::Running;
        let stem = self.forward_stem(pixels, stats);
        let mut stages = Vec::with_capacity(self.stages.len());
        let last = self.forward_stages(stem.clone(), stats, |x| stages.push(x.clone()));
        Features { stem, stages, pooled: global_average_pool(last) }
    }

    #[track_caller]
    fn forward_with(&self, pixels: Tensor<B, 4>, stats: &mut BatchStats<B>) -> Tensor<B, 2> {
        let x = self.forward_stem(pixels, stats); // [b, embedding_size, h/4, w/4], with the large stem
        let x = self.forward_stages(x, stats, |_| ()); // [b, hidden_size, h', w']
        let pooled = global_average_pool(x); // [b, hidden_size]
        match &self.head {
            Some(head) => head.forward(pooled),
            None => pooled,
        }
    }

    /// Applies the stem and its pooling. Pixels are cast to the weights' dtype.
    #[track_caller]
    fn forward_stem(&self, pixels: Tensor<B, 4>, stats: &mut BatchStats<B>) -> Tensor<B, 4> {
        let x = self.stem.forward_act(to_dtype(pixels, self.stem.conv.weight.dtype()), self.activation, stats);
        match self.maxpool {
            Some(options) => max_pool(x, options),
            None => x,
        }
    }

    /// Applies the stages. Calls `each` with the output of every stage.
    #[track_caller]
    fn forward_stages(
        &self,
        mut x: Tensor<B, 4>,
        stats: &mut BatchStats<B>,
        mut each: impl FnMut(&Tensor<B, 4>),
    ) -> Tensor<B, 4> {
        for stage in &self.stages {
            x = stage.iter().fold(x, |x, block| block.forward(x, stats));
            each(&x);
        }
        x
    }

    /// Iterates over the batch norms in the order in which the forward pass uses them.
    fn norms_mut(&mut self) -> impl Iterator<Item = &mut BatchNorm<B>> {
        let blocks = self.stages.iter_mut().flatten().flat_map(ResNetBlock::layers_mut);
        iter::once(&mut self.stem).chain(blocks).map(|layer| &mut layer.norm)
    }

    /// Computes the mean negative log-likelihood, in nats, of each image's class, `[b]`, for training: with the batch's
    /// own statistics. Also returns the model with updated running statistics. See [`train`](Self::train).
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use grove_models::{Pretrained, resnet::{Naming, ResNet, ResNetConfig, Stem}};
    /// use grove_transform::value_and_grad_aux;
    /// use grove_tree::{Key, zip_map};
    /// # type B = burn_flex::Flex;
    /// # let device = Default::default();
    /// # let sizes = ResNetConfig { embedding_size: 8, hidden_sizes: vec![8, 16], depths: vec![1, 1], ..ResNetConfig::default() };
    /// # let config = ResNetConfig { stem: Stem::Small, naming: Naming::Torchvision, ..sizes }.with_labels(["cat", "dog"]);
    /// let model = ResNet::<B>::init(&config, Key::new(0), &device)?;
    /// let (loss, grads, successor) = value_and_grad_aux(&model, |model| {
    ///     model.train_loss(Tensor::ones([4, 3, 32, 32], &device), Tensor::from_ints([0, 1, 0, 1], &device))
    /// });
    /// // Gradient descent; where there is no gradient, at the running statistics, the successor's leaf stays.
    /// let model = zip_map(successor, &grads, |_, leaf, grad| leaf.clone().try_sub(grad.mul_scalar(0.1)).unwrap_or(leaf))?;
    /// # assert!(loss.into_scalar() > 0.0 && model.stem.conv.weight.is_present());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// As [`train`](Self::train).
    #[track_caller]
    pub fn train_loss(&self, pixels: Tensor<B, 4>, labels: Tensor<B, 1, Int>) -> (Tensor<B, 1>, Self) {
        let (logits, successor) = self.train(pixels);
        (loss::cross_entropy(logits, labels), successor)
    }

    /// Computes the mean negative log-likelihood, in nats, of each image's class, `[b]`, for evaluation: with the
    /// running statistics. Use [`train_loss`](Self::train_loss) for training.
    #[track_caller]
    pub fn loss(&self, pixels: Tensor<B, 4>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(pixels), labels)
    }

    /// Returns the network with a new head for other classes.
    #[must_use]
    pub fn with_new_head(self, labels: Vec<String>, key: Key) -> Self {
        let channels = self.config.hidden_sizes.last().copied().unwrap_or_default();
        let init = Init::new(key, &self.stem.conv.weight.val().device());
        let head = (!labels.is_empty()).then(|| Linear::new(channels, labels.len(), &init));
        Self { head, config: self.config.clone().with_labels(labels), ..self }
    }
}

/// Residual block: convolutions with a shortcut connection.
#[derive(Tree, Clone, Debug)]
pub struct ResNetBlock<B: Backend> {
    /// Two (basic) or three (bottleneck) convolutions, with ReLUs between them.
    pub layers: Vec<ConvBn<B>>,
    /// Projection of the input to the output's shape; `None` if the shapes are equal.
    pub shortcut: Option<ConvBn<B>>,
    /// Activation after the residual is added.
    #[tree(static)]
    pub activation: Activation,
}

impl<B: Backend> ResNetBlock<B> {
    /// Computes the block's output.
    ///
    /// # Shapes
    /// - x `[b, in, h, w]`
    /// - output `[b, out, h', w']`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 4>, stats: &mut BatchStats<B>) -> Tensor<B, 4> {
        let residual = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x.clone(), stats),
            None => x.clone(),
        }; // [b, out, h', w']
        let [inner @ .., last] = &self.layers[..] else { return self.activation.forward(residual) };
        let x = inner.iter().fold(x, |x, layer| layer.forward_act(x, Activation::Relu, stats));
        last.forward_add_act(x, residual, self.activation, stats)
    }

    /// Iterates over the convolutions in the order in which [`forward`](Self::forward) applies them.
    fn layers_mut(&mut self) -> impl Iterator<Item = &mut ConvBn<B>> {
        self.shortcut.iter_mut().chain(&mut self.layers)
    }
}

impl<B: Backend> Pretrained<B> for ResNet<B> {
    type Config = ResNetConfig;

    /// Creates a network with the initialisation of torchvision and transformers: He initialisation for the
    /// convolutions, and a uniform head with bound `1 / sqrt(inputs)`.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &ResNetConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let activation = config.activation()?;
        let (kernel, stride, maxpool) = match config.stem {
            Stem::Large => (7, 2, Some(Pool2dOptions { kernel: [3; 2], stride: [2; 2], padding: [1; 2] })),
            Stem::Small => (3, 1, None),
        };
        let mut channels = config.embedding_size;
        let stem = conv(config.num_channels, channels, kernel, stride, 1, &init.named("stem"));
        let mut stages = Vec::with_capacity(config.depths.len());
        for (i, (&depth, &outputs)) in config.depths.iter().zip(&config.hidden_sizes).enumerate() {
            let init = init.named("stages").fold_in(i as u32);
            let halving = i > 0 || config.downsample_in_first_stage;
            let block = |j: usize| {
                let (inputs, stride) = if j == 0 { (channels, 1 + usize::from(halving)) } else { (outputs, 1) };
                let init = init.fold_in(j as u32);
                ResNetBlock {
                    layers: layers(inputs, outputs, i, stride, config, &init),
                    shortcut: (inputs != outputs || stride != 1)
                        .then(|| conv(inputs, outputs, 1, stride, 1, &init.named("shortcut"))),
                    activation,
                }
            };
            stages.push((0..depth).map(block).collect());
            channels = outputs;
        }
        let classes = config.labels.len();
        let head = (classes > 0).then(|| Linear::new(channels, classes, init.named("head")));
        Ok(Self { stem, activation, maxpool, stages, head, config: config.clone() })
    }

    fn config(&self) -> &ResNetConfig {
        &self.config
    }

    fn published_names(config: &ResNetConfig) -> NameMap {
        published_names(config)
    }

    fn published_config(&self) -> Result<Map<String, Value>> {
        let mut fields = fields_of(&self.config)?;
        if self.config.naming != Naming::Transformers {
            fields.remove("architectures");
            fields.insert("model_type".into(), OTHER_NAMES.into());
            return Ok(fields);
        }
        let class = if self.head.is_some() { "ResNetForImageClassification" } else { "ResNetModel" };
        fields.insert("model_type".into(), "resnet".into());
        fields.insert("architectures".into(), vec![class].into());
        Ok(fields)
    }

    /// Returns the batch counters of PyTorch's batch norms. With a fixed momentum they have no effect; they are 0 as in
    /// a new network.
    fn published_constants(&self) -> BTreeMap<String, TensorData> {
        let names = published_names(&self.config);
        let counter = |path: String| {
            let (name, _) = names.saved(&path)?;
            let norm = name.strip_suffix("running_mean")?;
            Some((format!("{norm}num_batches_tracked"), TensorData::new(vec![0_i64], [0; 0])))
        };
        paths(self).into_iter().filter_map(counter).collect()
    }
}

/// Creates the convolutions of a block.
fn layers<B: Backend>(
    inputs: usize,
    outputs: usize,
    stage: usize,
    stride: usize,
    config: &ResNetConfig,
    init: &Init<B>,
) -> Vec<ConvBn<B>> {
    let inner = config.inner_size(stage);
    // Input channels, output channels, kernel, stride and groups of each convolution.
    let sizes = match config.layer_type {
        LayerType::Basic => vec![(inputs, inner, 3, stride, 1), (inner, outputs, 3, 1, 1)],
        LayerType::Bottleneck => {
            let [first, second] = if config.downsample_in_bottleneck { [stride, 1] } else { [1, stride] };
            vec![(inputs, inner, 1, first, 1), (inner, inner, 3, second, config.groups), (inner, outputs, 1, 1, 1)]
        }
    };
    let layer = |(k, (inputs, outputs, kernel, stride, groups))| {
        conv(inputs, outputs, kernel, stride, groups, &init.fold_in(k as u32))
    };
    sizes.into_iter().enumerate().map(layer).collect()
}

/// Creates a convolution with a square kernel, padded so that only the stride changes the size.
fn conv<B: Backend>(
    inputs: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
    init: &Init<B>,
) -> ConvBn<B> {
    let options = Conv2dOptions { stride: [stride; 2], padding: [kernel / 2; 2], dilation: [1; 2], groups };
    ConvBn::new(inputs, outputs, [kernel; 2], options, init)
}
