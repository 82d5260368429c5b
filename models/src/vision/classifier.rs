use burn::tensor::Tensor;
use grove_backend::{Autodiff, Backend};
use grove_compile::{Traceable, Traced};
use grove_layers::Linear;
use grove_tree::{Key, Tree};

use crate::{
    Pretrained,
    error::{ModelError, Result},
    labels::keep_classes,
    problem_type::ProblemType,
    resnet::ResNet,
    vit::Vit,
};

/// An image classifier, for programs that classify and train.
pub trait ImageClassifier<B: Backend>: Pretrained<B> {
    /// Computes the logits of images, `[b, channels, h, w]` to `[b, classes]`.
    fn logits(&self, pixels: Tensor<B, 4>) -> Tensor<B, 2>;

    /// Returns logits in training mode, and the model with updated running statistics, if it has any.
    fn logits_in_training(&self, pixels: Tensor<B, 4>, key: Key) -> (Tensor<B, 2>, Self);

    /// Returns the model with a new head for other classes.
    #[must_use]
    fn with_new_head(self, labels: Vec<String>, key: Key) -> Self;

    /// Returns the model for these classes, in this order. The head keeps the weights of classes that it has, matched
    /// by name. Weights of the other classes are new.
    #[must_use]
    fn with_labels(mut self, labels: Vec<String>, key: Key) -> Self {
        let (old, old_labels) = (self.head_mut().take(), self.labels().to_vec());
        let mut model = self.with_new_head(labels, key);
        if let (Some(old), Some(new)) = (old, model.head_mut().clone()) {
            let head = keep_classes(&old, new, &old_labels, model.labels());
            *model.head_mut() = Some(head);
        }
        model
    }

    /// Returns the classification head; `None` if the model has no head.
    fn head_mut(&mut self) -> &mut Option<Linear<B>>;

    /// Checks that images of this height and width are supported and have at most `max_patches` patches. The cost of
    /// attention is quadratic in the number of patches.
    ///
    /// # Errors
    /// [`ModelError::ImageSize`].
    fn check_size(&self, size: [usize; 2], max_patches: usize) -> Result<()>;

    /// Checks that batches of this many images of this height and width have statistics to train with. By default all
    /// have.
    ///
    /// # Errors
    /// [`ModelError::Config`] if a batch norm would get one value per channel.
    fn check_batch(&self, _images: usize, _size: [usize; 2]) -> Result<()> {
        Ok(())
    }

    /// Returns the model for images of this height and width, adapted if the model was built for another size.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the model does not support such images.
    fn for_size(self, size: [usize; 2]) -> Result<Self>;

    /// Returns the class names.
    fn labels(&self) -> &[String];

    /// Returns the problem type, which determines the meaning of the logits.
    fn problem(&self) -> ProblemType;

    /// Returns the number of image channels.
    fn channels(&self) -> usize;

    /// Returns the depth of the leaf at a path: the number of layers between the leaf and the head. The deepest leaves
    /// have the number of layers as their depth.
    fn depth(&self, path: &str) -> usize;
}

/// An image classifier that can be trained, eagerly or traced. Implemented for every classifier that is generic in its
/// backend.
pub trait TrainableImageClassifier<B: Backend>:
    ImageClassifier<B>
    + Tree<B, On<Autodiff<B>>: ImageClassifier<Autodiff<B>>>
    + Traceable<B, OnTraced: Tree<Traced, On<Autodiff<Traced>>: ImageClassifier<Autodiff<Traced>>>>
{
}

impl<B: Backend, M> TrainableImageClassifier<B> for M where
    M: ImageClassifier<B>
        + Tree<B, On<Autodiff<B>>: ImageClassifier<Autodiff<B>>>
        + Traceable<B, OnTraced: Tree<Traced, On<Autodiff<Traced>>: ImageClassifier<Autodiff<Traced>>>>
{
}

impl<B: Backend> ImageClassifier<B> for ResNet<B> {
    fn logits(&self, pixels: Tensor<B, 4>) -> Tensor<B, 2> {
        self.forward(pixels)
    }

    fn logits_in_training(&self, pixels: Tensor<B, 4>, _key: Key) -> (Tensor<B, 2>, Self) {
        self.train(pixels)
    }

    fn with_new_head(self, labels: Vec<String>, key: Key) -> Self {
        self.with_new_head(labels, key)
    }

    fn head_mut(&mut self) -> &mut Option<Linear<B>> {
        &mut self.head
    }

    /// Accepts all images that are not empty: convolutions support every size, and there are no patches.
    fn check_size(&self, size: [usize; 2], _max_patches: usize) -> Result<()> {
        match size.contains(&0) {
            true => Err(ModelError::ImageSize { size, reason: "are empty".into() }),
            false => Ok(()),
        }
    }

    fn check_batch(&self, images: usize, size: [usize; 2]) -> Result<()> {
        let [height, width] = size;
        let reduction = self.config.reduction();
        if images > 1 || height.div_ceil(reduction) > 1 || width.div_ceil(reduction) > 1 {
            return Ok(());
        }
        Err(ModelError::Config {
            reason: format!(
                "batch normalisation needs more than one value per channel in training, and a batch of one image of \
                 {height}x{width} pixels has one in the last stage: train with larger batches or larger images"
            ),
        })
    }

    fn for_size(self, _size: [usize; 2]) -> Result<Self> {
        Ok(self)
    }

    fn labels(&self) -> &[String] {
        &self.config.labels
    }

    fn problem(&self) -> ProblemType {
        ProblemType::of_fields(&self.config.other, self.config.labels.len()).unwrap_or(ProblemType::SingleLabel)
    }

    fn channels(&self) -> usize {
        self.config.num_channels
    }

    /// Counts the blocks, and the stem as one more.
    fn depth(&self, path: &str) -> usize {
        let depths = &self.config.depths;
        let all: usize = depths.iter().sum();
        if path.starts_with("stem.") {
            return all + 1;
        }
        let mut numbers = path.strip_prefix("stages.").unwrap_or_default().split('.').map_while(|n| n.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(stage), Some(block)) => all - depths.iter().take(stage).sum::<usize>() - block,
            _ => 0,
        }
    }
}

impl<B: Backend> ImageClassifier<B> for Vit<B> {
    fn logits(&self, pixels: Tensor<B, 4>) -> Tensor<B, 2> {
        self.forward(pixels, None)
    }

    fn logits_in_training(&self, pixels: Tensor<B, 4>, key: Key) -> (Tensor<B, 2>, Self) {
        (self.forward(pixels, Some(key)), self.clone())
    }

    fn with_new_head(self, labels: Vec<String>, key: Key) -> Self {
        self.with_new_head(labels, key)
    }

    fn head_mut(&mut self) -> &mut Option<Linear<B>> {
        &mut self.head
    }

    fn check_size(&self, size: [usize; 2], max_patches: usize) -> Result<()> {
        let patch = self.config.patch_size;
        let unsupported = |reason: String| Err(ModelError::ImageSize { size, reason });
        match size.map(|side| side / patch) {
            [0, _] | [_, 0] => unsupported(format!("have no whole patch of the model's {patch}x{patch}")),
            [rows, columns] if rows.saturating_mul(columns) > max_patches => unsupported(format!(
                "fall into {} patches of {patch}x{patch}, more than the limit of {max_patches}",
                rows.saturating_mul(columns)
            )),
            _ => Ok(()),
        }
    }

    fn for_size(self, size: [usize; 2]) -> Result<Self> {
        self.with_image_size(size)
    }

    fn labels(&self) -> &[String] {
        &self.config.labels
    }

    fn problem(&self) -> ProblemType {
        ProblemType::of_fields(&self.config.other, self.config.labels.len()).unwrap_or(ProblemType::SingleLabel)
    }

    fn channels(&self) -> usize {
        self.config.num_channels
    }

    /// Counts the blocks, and the embeddings as one more.
    fn depth(&self, path: &str) -> usize {
        let all = self.blocks.len();
        if path.starts_with("embeddings.") {
            return all + 1;
        }
        let block = path.strip_prefix("blocks.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        block.map_or(0, |block| all - block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PretrainedConfig, ResNetConfig, VitConfig};
    use burn_flex::Flex;

    #[test]
    fn sizes_of_images_are_bounded() {
        let model = Vit::<Flex>::skeleton(&VitConfig::default()).unwrap();
        let message = |size, most| model.check_size(size, most).unwrap_err().to_string();
        for size in [[16, 16], [224, 224], [31, 2048 * 16]] {
            model.check_size(size, 2048).unwrap();
        }
        assert_eq!(
            message([224, 224], 195),
            "images of 224x224 pixels fall into 196 patches of 16x16, more than the limit of 195"
        );
        for size in [[15, 224], [224, 15], [0, 0]] {
            assert!(message(size, 2048).contains("no whole patch of the model's 16x16"));
        }
        assert!(message([28, 65536], 4095).contains("4096 patches"));
        assert!(message([usize::MAX, usize::MAX], 4095).contains("more than the limit"));
        let model = ResNet::<Flex>::skeleton(&ResNetConfig::preset("resnet18").unwrap()).unwrap();
        model.check_size([1, 65536], 1).unwrap();
        assert!(model.check_size([0, 8], 1).is_err());
    }

    #[test]
    fn depths_below_the_head() {
        let model = ResNet::<Flex>::skeleton(&ResNetConfig::preset("resnet18").unwrap()).unwrap();
        let depth = |path: &str| model.depth(path);
        assert_eq!(
            ["head.weight", "stages.3.1.layers.0.conv.weight", "stages.3.0.shortcut.norm.bias"].map(depth),
            [0, 1, 2]
        );
        assert_eq!(["stages.0.0.layers.1.norm.weight", "stem.conv.weight"].map(depth), [8, 9]);
        let model = Vit::<Flex>::skeleton(&VitConfig::default()).unwrap();
        let depth = |path: &str| model.depth(path);
        assert_eq!(
            ["head.bias", "norm.weight", "blocks.11.norm1.bias", "blocks.0.mlp.up.weight"].map(depth),
            [0, 0, 1, 12]
        );
        assert_eq!(depth("embeddings.cls_token"), 13);
    }
}
