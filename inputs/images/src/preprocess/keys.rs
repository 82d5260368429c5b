//! Keys of preprocessing configurations. Each is followed, known to change no result, or refused by name. Keys that are
//! unknown to the image processors change nothing; they are named once on standard error.

use grove_files::{KnownKeys, RefusedKey};

/// Keys of transformers' `preprocessor_config.json`.
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
        RefusedKey { key: "do_pad", neutral: &["false"], instead: "set it to false and pad the images themselves" },
        RefusedKey { key: "pad_size", neutral: &[], instead: "remove it and pad the images themselves" },
        RefusedKey {
            key: "do_flip_channel_order",
            neutral: &["false"],
            instead: "swap the first convolution's channels instead",
        },
        RefusedKey { key: "rescale_offset", neutral: &["false"], instead: "use image_mean and image_std instead" },
        RefusedKey { key: "offset", neutral: &["false"], instead: "use image_mean and image_std instead" },
        RefusedKey {
            key: "use_square_size",
            neutral: &["false"],
            instead: "set it to false and give size as {\"height\": …, \"width\": …}",
        },
    ],
};

/// Keys of timm's `pretrained_cfg`.
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
        ("test_pool_size", "for timm's evaluation at another size, which is asked for"),
        ("url", "where the weights came from"),
    ],
    refused: &[],
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Each key that transformers' image processors and timm read or write is in one of the sets. Fixture:
    /// tools/fixtures/keys.py.
    #[test]
    fn every_key_of_the_libraries_is_known() {
        let keys: BTreeMap<String, Vec<String>> =
            serde_json::from_str(include_str!("../../tests/fixtures/keys.json")).unwrap();
        assert!(keys.len() > 7 && keys["ViTImageProcessor"].len() > 15 && keys["timm"].len() > 30);
        for (class, keys) in keys {
            let known = if class == "timm" { &TIMM } else { &TRANSFORMERS };
            let unknown: Vec<&String> = keys.iter().filter(|key| !known.knows(key)).collect();
            assert!(unknown.is_empty(), "{class}: {unknown:?}");
        }
    }

    #[test]
    fn no_key_is_in_two_sets() {
        for keys in [&TRANSFORMERS, &TIMM] {
            let all: Vec<&str> = keys.all().collect();
            let mut once = all.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), all.len(), "{all:?}");
        }
    }
}
