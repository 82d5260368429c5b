//! Keys of the files of preprocessing. Each is followed, or known to change no result, or refused by name. A key that the
//! image processors read here do not have changes nothing; it is named once on standard error.

use grove_files::say_once;

use super::config::Entries;
use crate::error::Result;

/// The keys of one kind of file.
pub(super) struct KnownKeys {
    /// Keys that are read.
    pub followed: &'static [&'static str],
    /// Keys that change no result, each with the reason.
    pub without_effect: &'static [(&'static str, &'static str)],
    /// Keys that change results, each with the values that change nothing, as compact JSON, and the way out.
    pub refused: &'static [(&'static str, &'static [&'static str], &'static str)],
}

/// `preprocessor_config.json` of transformers.
pub(super) const TRANSFORMERS: KnownKeys = KnownKeys {
    followed: &[
        "image_processor_type",
        "feature_extractor_type",
        "do_resize",
        "size",
        "default_to_square",
        "resample",
        "do_center_crop",
        "crop_size",
        "crop_pct",
        "do_rescale",
        "rescale_factor",
        "do_normalize",
        "image_mean",
        "image_std",
        "convention",
    ],
    without_effect: &[
        ("auto_map", "no remote code is run"),
        ("data_format", "the model's own order of axes"),
        ("device", "images are prepared on the host"),
        ("disable_grouping", "images are prepared one by one"),
        ("do_convert_rgb", "images are read in colour"),
        ("do_reduce_labels", "for labels of pixels"),
        ("image_seq_length", "for models of texts and images"),
        ("input_data_format", "images come from files"),
        ("processor_class", "for models of texts and images"),
        ("return_tensors", "for Python"),
        ("_processor_class", "for models of texts and images"),
    ],
    refused: &[
        ("do_pad", &["false"], "set it to false and pad the images themselves"),
        ("pad_size", &[], "remove it and pad the images themselves"),
        ("do_flip_channel_order", &["false"], "swap the first convolution's channels instead"),
        ("rescale_offset", &["false"], "use image_mean and image_std instead"),
        ("offset", &["false"], "use image_mean and image_std instead"),
    ],
};

/// timm's `pretrained_cfg`.
pub(super) const TIMM: KnownKeys = KnownKeys {
    followed: &["input_size", "crop_pct", "crop_mode", "interpolation", "mean", "std"],
    without_effect: &[
        ("architecture", "read with the model"),
        ("classifier", "a name in the weights"),
        ("custom_load", "the weights are read as they are"),
        ("description", "a note"),
        ("file", "where the weights came from"),
        ("first_conv", "a name in the weights"),
        ("fixed_input_size", "read with the model"),
        ("global_pool", "read with the model"),
        ("hf_hub_filename", "where the weights came from"),
        ("hf_hub_id", "where the weights came from"),
        ("img_size", "read with the model"),
        ("label_descriptions", "a note"),
        ("label_names", "read with the model"),
        ("label_offset", "for the first training alone"),
        ("labels", "read with the model"),
        ("license", "a note"),
        ("min_input_size", "a limit that timm does not enforce"),
        ("model_args", "read with the model"),
        ("notes", "a note"),
        ("num_classes", "it shows in the weights"),
        ("num_features", "it shows in the weights"),
        ("origin_url", "a note"),
        ("paper_ids", "a note"),
        ("paper_name", "a note"),
        ("pool_size", "it shows in the weights"),
        ("pretrained_cfg", "read by itself"),
        ("source", "where the weights came from"),
        ("state_dict", "where the weights came from"),
        ("tag", "a note"),
        ("test_crop_pct", "for timm's evaluation at another size, which is asked for"),
        ("test_input_size", "for timm's evaluation at another size, which is asked for"),
        ("url", "where the weights came from"),
    ],
    refused: &[],
};

impl KnownKeys {
    /// Checks the keys of a file.
    ///
    /// # Errors
    /// A key is refused; the error names the file, the key, its value and the way out.
    pub fn check(&self, config: &Entries) -> Result<()> {
        let mut unknown = vec![];
        for (key, value) in config.entries.iter().filter(|(_, value)| !value.is_null()) {
            let key = key.as_str();
            if self.followed.contains(&key) || self.without_effect.iter().any(|(known, _)| *known == key) {
                continue;
            }
            match self.refused.iter().find(|(refused, _, _)| *refused == key) {
                Some((_, neutral, _)) if neutral.contains(&&*value.to_string()) => {}
                Some((_, _, instead)) => {
                    return Err(config.wrong(format!("{key} is {value}, which is not supported; {instead}")));
                }
                None => unknown.push(key),
            }
        }
        if !unknown.is_empty() {
            let (file, keys) = (config.file.display(), unknown.join(", "));
            let keys: String = keys.chars().take(300).collect();
            say_once(&format!("{file}: keys that are not known and change nothing here: {keys}"));
        }
        Ok(())
    }
}
