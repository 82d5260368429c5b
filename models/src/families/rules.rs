//! Macros that expand the table of families.

/// Expands all rows: [`ModelKind`](super::ModelKind), [`AutoModel`](super::AutoModel) and the choices by kind.
macro_rules! families {
    (decoders { $($decoders:tt)* } images { $($images:tt)* } others { $($others:tt)* }) => {
        every_family! { $($decoders)* $($images)* $($others)* }
        decoders! { $($decoders)* }
        image_classifiers! { $($images)* }
    };
}

macro_rules! every_family {
    ($(
        $(#[$doc:meta])*
        $kind:ident: $name:literal, $config:ident, [$($model_type:literal),*], [$($tensor:literal),*],
        { $($class:literal => $with_head:ident,)* _ => $model:ident }
    )*) => {
        /// Model family.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ModelKind {
            $($(#[$doc])* $kind,)*
        }

        /// Types that stand for a family, on any backend.
        pub mod family {
            $(
                #[doc = concat!("Stands for ", $name, ".")]
                #[derive(Clone, Copy, Debug, Default)]
                pub struct $kind;
            )*
        }

        /// All families.
        const FAMILIES: &[Family] = &[$(Family {
            kind: ModelKind::$kind,
            name: $name,
            model_types: &[$($model_type),*],
            tensors: &[$($tensor),*],
            has_preset: |name| $config::preset(name).is_ok(),
        },)*];

        /// A model of the family that its files name.
        ///
        /// As a tree it is the model itself: paths are the family's.
        ///
        /// ```no_run
        /// use grove_models::AutoModel;
        /// # type B = burn_flex::Flex;
        /// let model = AutoModel::<B>::from_pretrained("HuggingFaceTB/SmolLM2-135M", &Default::default())?;
        /// println!("{:?} with {} parameters", model.kind(), model.num_parameters());
        /// model.save_pretrained("smollm2")?;
        /// # Ok::<(), grove_models::ModelError>(())
        /// ```
        #[derive(Tree, Clone, Debug)]
        #[tree(transparent)]
        #[non_exhaustive]
        #[allow(missing_docs)] // Each variant has the name of its model.
        pub enum AutoModel<B: Backend> {
            $($($with_head($with_head<B>),)* $model($model<B>),)*
        }

        impl<B: Backend> AutoModel<B> {
            /// Loads a model and its adapter. `dtype` is as in the family's [`Pretrained::from_path`].
            ///
            /// # Errors
            /// As [`ModelKind::of`] and [`ModelFiles::load`].
            pub fn from_files(files: &ModelFiles, device: &B::Device, dtype: Option<DType>) -> Result<Self> {
                let path = files.path();
                Ok(match (ModelKind::of(path)?, class_with_head(path)?.as_deref()) {
                    $(
                        $((ModelKind::$kind, Some($class)) => Self::$with_head(files.load(device, dtype)?.0),)*
                        (ModelKind::$kind, _) => Self::$model(files.load(device, dtype)?.0),
                    )*
                })
            }

            /// Returns the model's family.
            pub fn kind(&self) -> ModelKind {
                match self {
                    $($(Self::$with_head(_) => ModelKind::$kind,)* Self::$model(_) => ModelKind::$kind,)*
                }
            }

            /// Saves the model in files of at most `max_shard_bytes`; see [`Pretrained::save_sharded`].
            ///
            /// # Errors
            /// As [`Pretrained::save_pretrained`].
            pub fn save_sharded(&self, directory: impl AsRef<Path>, max_shard_bytes: Option<usize>) -> Result<()> {
                let directory = directory.as_ref();
                match self {
                    $(
                        $(Self::$with_head(model) => model.save_sharded(directory, max_shard_bytes),)*
                        Self::$model(model) => model.save_sharded(directory, max_shard_bytes),
                    )*
                }
            }

            /// Returns the fields of the model's `config.json`.
            ///
            /// # Errors
            /// As [`Pretrained::published_config`].
            pub fn config(&self) -> Result<Map<String, Value>> {
                match self {
                    $(
                        $(Self::$with_head(model) => model.published_config(),)*
                        Self::$model(model) => model.published_config(),
                    )*
                }
            }
        }

        impl ModelKind {
            /// Runs a computation with the family's type of model, for a class of transformers with a head such as
            /// `MaskedLM`, if the family has a type for it.
            pub fn with_model<B: Backend, V: WithModel<B>>(self, class: Option<&str>, visitor: V) -> V::Output {
                match (self, class) {
                    $(
                        $((Self::$kind, Some($class)) => visitor.run::<$with_head<B>>(),)*
                        (Self::$kind, _) => visitor.run::<$model<B>>(),
                    )*
                }
            }
        }
    };
}

macro_rules! decoders {
    ($(
        $(#[$doc:meta])*
        $kind:ident: $name:literal, $config:ident, [$($model_type:literal),*], [$($tensor:literal),*],
        { $($class:literal => $with_head:ident,)* _ => $model:ident }
    )*) => {
        $(impl DecoderFamily for family::$kind {
            type Model<B: Backend> = $model<B>;
            const KIND: ModelKind = ModelKind::$kind;
        })*

        impl ModelKind {
            /// Returns true if the models are causal language models.
            pub fn is_decoder(self) -> bool {
                matches!(self, $(Self::$kind)|*)
            }

            /// Runs a computation with a decoder of this family.
            ///
            /// # Errors
            /// The kind itself, if its models are not decoders.
            pub fn with_decoder<V: WithDecoder>(self, visitor: V) -> std::result::Result<V::Output, Self> {
                match self {
                    $(Self::$kind => Ok(visitor.run::<family::$kind>()),)*
                    other => Err(other),
                }
            }

            /// Runs a computation with a decoder of this family that classifies texts.
            ///
            /// # Errors
            /// The kind itself, if its models are not such decoders.
            pub fn with_decoder_classifier<B: Backend, V: WithDecoderClassifier<B>>(
                self,
                visitor: V,
            ) -> std::result::Result<V::Output, Self> {
                match self {
                    $($(Self::$kind => Ok(visitor.run::<$with_head<B>>()),)*)*
                    other => Err(other),
                }
            }
        }

        impl<B: Backend> AutoModel<B> {
            /// Runs a computation with the model if it is a causal language model.
            ///
            /// # Errors
            /// The model's kind, if it is not a decoder.
            pub fn with_decoder<V: WithDecoderModel<B>>(
                &self,
                visitor: V,
            ) -> std::result::Result<V::Output, ModelKind> {
                match self {
                    $(Self::$model(model) => Ok(visitor.run(model)),)*
                    other => Err(other.kind()),
                }
            }
        }
    };
}

macro_rules! image_classifiers {
    ($(
        $(#[$doc:meta])*
        $kind:ident: $name:literal, $config:ident, [$($model_type:literal),*], [$($tensor:literal),*],
        { _ => $model:ident }
    )*) => {
        $(impl ImageFamily for family::$kind {
            type Model<B: Backend> = $model<B>;
            const KIND: ModelKind = ModelKind::$kind;
        })*

        impl ModelKind {
            /// Returns true if the models are image classifiers.
            pub fn is_image_classifier(self) -> bool {
                matches!(self, $(Self::$kind)|*)
            }

            /// Runs a computation with an image classifier of this family.
            ///
            /// # Errors
            /// The kind itself, if its models are not image classifiers.
            pub fn with_image_classifier<V: WithImageClassifier>(
                self,
                visitor: V,
            ) -> std::result::Result<V::Output, Self> {
                match self {
                    $(Self::$kind => Ok(visitor.run::<family::$kind>()),)*
                    other => Err(other),
                }
            }
        }
    };
}
