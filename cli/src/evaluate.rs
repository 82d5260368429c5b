//! `grove evaluate`: metrics of a model of any family on data.

use grove::{
    models::{
        DecoderFamily, ImageFamily, ModelKind, TextClassifier,
        bert::BertForMaskedLm,
        families::{WithDecoder, WithDecoderClassifier, WithImageClassifier},
        vision::ImageClassifier,
    },
    train::data::{LmText, masked_lm_sequences, read_documents},
};

use crate::{
    bert::Encoder,
    finetune_bert::TextReader,
    inference::InferenceArgs,
    kind::{WithModelAt, check_head, wrong_kind},
    labelled::LabelledArgs,
    language::{TextColumn, context, encode_text, existing_tokenizer, print_evaluation},
    prelude::*,
    rnn,
    train_bert::print_masked_evaluation,
    vision::{EvaluationImages, ImageColumns, ImageEvaluation, SizeArgs, preprocessor_of},
};

/// Prints the loss and perplexity of a language model on text, or the loss and accuracy of a BERT on masked tokens.
#[derive(Parser, Debug)]
#[command(
    mut_arg("dtype", |arg| arg.default_value("auto")),
    after_help = "Examples:
  grove evaluate language --model openai-community/gpt2 --data book.txt
  grove evaluate language --model run/model --data held_out/ --context 256
  grove evaluate language --model run/model --data test.parquet \\
      --text-column content",
)]
pub struct Language {
    /// Directory, weights file, or hub id of a GPT-2, GPT-Neo, LLaMA, BERT or recurrent language model
    #[arg(long)]
    pub model: String,

    /// Text files, .jsonl or .parquet files, or folders of either. A text file is one document, as is each record of the others.
    /// Or one token file, .tokens
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    pub data: Vec<PathBuf>,

    /// Column of files of records.
    #[command(flatten)]
    pub column: TextColumn,

    /// Directory of a tokenizer [default: the model's own]
    #[arg(long, value_name = "DIR")]
    pub tokenizer: Option<PathBuf>,

    /// Context length in tokens [default: the model's maximum; 128 for a recurrent model]
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,

    /// Sequences per batch
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub batch_size: usize,

    /// Adapter, device and output.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

impl Command for Language {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        at_least_one([("batch-size", self.batch_size), ("context", self.context.unwrap_or(1))])?;
        self.column.check(self.data.iter())?;
        self.inference.device.spec()
    }

    /// Evaluates a model of the family of the weights.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let path = resolve_named(&self.model)?;
        match ModelKind::of(&path)?.with_decoder(WithModelAt::<B, _> { options: self, path: &path, device }) {
            Ok(evaluated) => evaluated,
            Err(ModelKind::Bert) => self.bert::<B>(device),
            Err(other) => Err(wrong_kind(&path, other)),
        }
    }
}

impl<B: Backend> WithDecoder for WithModelAt<'_, B, Language> {
    type Output = Result<Ended, Exit>;

    fn run<F: DecoderFamily>(self) -> Self::Output {
        let Self { options, path, device } = self;
        let InferenceArgs { device: DeviceArgs { dtype, .. }, json, .. } = options.inference;
        let data = LmText::read(&options.data, options.column.name())?;
        let files = options.inference.files(path)?;
        let (model, _) = files.load::<B, F::Model<B>>(device, dtype.wanted())?;
        let tokenizer = existing_tokenizer(options.tokenizer.as_deref(), &files, &data)?;
        let stream = encode_text(data, &model, Some(path), tokenizer.as_ref())?;
        let context = context(options.context, model.context())?;
        print_evaluation(&model, &stream, context, options.batch_size, json)
    }
}

impl Language {
    fn bert<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        if self.tokenizer.is_some() {
            return Err(usage("--tokenizer has no effect on a BERT, whose tokenizer is beside its weights"));
        }
        let Encoder { files, config, tokenizer, .. } =
            Encoder::open(Some(&self.model), self.inference.adapter.as_deref())?;
        let (model, _) = files.load::<B, BertForMaskedLm<B>>(device, self.inference.device.dtype.wanted())?;
        let context = context(self.context, Some(config.positions()))?;
        let texts =
            masked_lm_sequences(&read_documents(&self.data, self.column.name())?, &tokenizer, &config, context)?;
        print_masked_evaluation(&model, &tokenizer, &texts, self.batch_size, self.inference.json)
    }
}

/// Prints the metrics of a classifier on labelled texts: accuracy, F1 and a table of the classes.
#[derive(Parser, Debug)]
#[command(
    mut_arg("data", |arg| arg.required(true)),
    after_help = "Examples:
  grove evaluate texts --model run/model --data test.csv
  grove evaluate texts --model run/model --data test.tsv --text-column review \\
      --label-column sentiment",
)]
pub struct Texts {
    /// Directory, weights file, or hub id of a classifier: a BERT, GPT-2, GPT-Neo, LLaMA or recurrent network
    #[arg(long)]
    pub model: String,

    /// Labelled texts.
    #[command(flatten)]
    pub labelled: LabelledArgs,

    /// Separator of the labels of a text, for a multi-label model [default: a comma]
    #[arg(long, value_name = "CHARACTER", help_heading = "Data")]
    pub label_separator: Option<char>,

    /// Maximum length of a text in tokens; longer texts are truncated [default: 128, or the model's maximum if that is less;
    /// 512 for a recurrent classifier]
    #[arg(long, value_name = "N")]
    pub max_length: Option<usize>,

    /// Texts per batch
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub batch_size: usize,

    /// Adapter, device and output.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

impl Command for Texts {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        at_least_one([("batch-size", self.batch_size), ("max-length", self.max_length.unwrap_or(1))])?;
        self.inference.device.spec()
    }

    /// Evaluates a classifier of the family of the weights.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let path = resolve_named(&self.model)?;
        match ModelKind::of(&path)? {
            ModelKind::Bert => {
                check_head(&path, "classify")?;
                let encoder = Encoder::open(Some(&self.model), self.inference.adapter.as_deref())?;
                let reader = TextReader::of(&encoder, self.max_length);
                self.classifier::<B, BertForSequenceClassification<B>>(&encoder.files, reader, device)
            }
            ModelKind::RnnClassifier if self.inference.adapter.is_some() => {
                Err(usage("--adapter: a recurrent classifier has no adapters"))
            }
            ModelKind::RnnClassifier => {
                let (model, _) = RnnClassifier::<B>::from_path(&path, device, self.inference.dtype())?;
                let max_length = self.max_length.unwrap_or(rnn::MAX_LENGTH);
                let reader =
                    rnn::TextReader { tokenizer: &Tokenizer::beside(&path)?, config: &model.config, max_length };
                reader.evaluate(&model, &self.labelled, self.batch_size, self.inference.json)
            }
            kind => {
                let run = kind.with_decoder_classifier(WithModelAt::<B, _> { options: self, path: &path, device });
                run.unwrap_or_else(|other| Err(wrong_kind(&path, other)))
            }
        }
    }
}

impl Texts {
    /// Evaluates an encoder or a decoder.
    fn classifier<B: Backend, M: TextClassifier<B>>(
        &self,
        files: &ModelFiles,
        reader: TextReader<'_>,
        device: &B::Device,
    ) -> Result<Ended, Exit> {
        let (model, _) = files.load::<B, M>(device, self.inference.dtype())?;
        reader.evaluate(&model, &self.labelled, self.label_separator, self.batch_size, self.inference.json)
    }
}

impl<B: Backend> WithDecoderClassifier<B> for WithModelAt<'_, B, Texts> {
    type Output = Result<Ended, Exit>;

    fn run<M: TextClassifier<B>>(self) -> Self::Output {
        let files = self.options.inference.files(self.path)?;
        let (tokenizer, max_length) = (Tokenizer::beside(files.tokenizer())?, self.options.max_length);
        let reader = TextReader { tokenizer: &tokenizer, positions: None, token_types: false, max_length };
        self.options.classifier::<B, M>(&files, reader, self.device)
    }
}

/// Prints the metrics of a classifier on labelled images: accuracy, F1 and a table of the classes.
#[derive(Parser, Debug)]
#[command(after_help = "Examples:
  grove evaluate images --model run/model --data flowers/test
  grove evaluate images --model microsoft/resnet-50 --data imagenet/val \\
      --batch-size 64
  grove evaluate images --model run/model --data test.parquet \\
      --image-column img")]
pub struct Images {
    /// Directory, weights file, or hub id of a ResNet, a ViT or a DINOv2, such as run/model
    #[arg(long)]
    pub model: String,

    /// Images: a folder with one folder per class, MNIST's idx files, CIFAR's binary files, or a .parquet file. If the data
    /// set has an evaluation part (val, or the test files), only that part is used
    #[arg(long, value_name = "PATH")]
    pub data: PathBuf,

    /// Columns of .parquet files.
    #[command(flatten)]
    pub columns: ImageColumns,

    /// Preprocessing: torchvision, torchvision-v2, vit, timm, timm-imagenet, mnist, cifar10, or a
    /// preprocessor_config.json [default: the files beside the model]
    #[arg(long, value_name = "NAME")]
    pub preprocess: Option<String>,

    /// Limits of image sizes.
    #[command(flatten)]
    pub sizes: SizeArgs,

    /// Images per batch
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub batch_size: usize,

    /// Adapter, device and output.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

impl Command for Images {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        at_least_one([("batch-size", self.batch_size)])?;
        self.columns.check(std::iter::once(&self.data))?;
        self.inference.device.spec()
    }

    /// Evaluates a model of the family of the weights.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let path = resolve_named(&self.model)?;
        WithModelAt::<B, _> { options: self, path: &path, device }.image_classifier()
    }
}

impl<B: Backend> WithImageClassifier for WithModelAt<'_, B, Images> {
    type Output = Result<Ended, Exit>;

    fn run<F: ImageFamily>(self) -> Self::Output {
        let Images { data, columns, preprocess, sizes, batch_size, inference, .. } = self.options;
        let files = inference.files(self.path)?;
        let preprocessor = |model: &F::Model<B>| preprocessor_of(preprocess.as_deref(), files.path(), model.channels());
        let images = EvaluationImages::open(data, columns)?;
        let (dtype, json) = (inference.device.dtype, inference.json);
        let evaluation = ImageEvaluation { images, sizes, batch_size: *batch_size, dtype, json };
        evaluation.run(&files, preprocessor, self.device)
    }
}
