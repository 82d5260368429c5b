use grove_optim::*;
use grove_tree::{Backend, Filter, Key, by_path, zip_map};

use crate::fixture::{Leaves, check, check_with};

/// The schedule of most cases that have one.
pub fn rates() -> Schedule {
    warmup_cosine_decay_schedule(0.01, 0.1, 4, 16, 0.002)
}

fn scaled<B, T>(name: &str, transformation: T, device: &B::Device)
where
    B: Backend,
    T: GradientTransformation<B, Leaves<B>> + Send + Sync + 'static,
{
    check::<B, _>(name, chain((transformation, scale(-0.05))), device);
}

fn simple<B: Backend>(device: B::Device) {
    scaled::<B, _>("identity", identity(), &device);
    scaled::<B, _>("set_to_zero", set_to_zero(), &device);
    let decay = |updates: Leaves<B>, params: &Leaves<B>| {
        zip_map(updates, params, |_, g, p| match g.is_present() {
            true => g.try_add(p.mul_scalar(0.1)).unwrap(),
            false => g,
        })
        .unwrap()
    };
    scaled::<B, _>("stateless", stateless(decay), &device);
    check::<B, _>("scale_by_schedule", scale_by_schedule(rates()), &device);
    check::<B, _>("scale_by_learning_rate", scale_by_learning_rate(rates()), &device);
    scaled::<B, _>("centralize", centralize(), &device);
    scaled::<B, _>("trace", trace(0.9, false), &device);
    scaled::<B, _>("trace_nesterov", trace(0.9, true), &device);
    scaled::<B, _>("ema", ema(0.9, true), &device);
    scaled::<B, _>("ema_biased", ema(0.9, false), &device);
    scaled::<B, _>("add_decayed_weights", add_decayed_weights(0.3, Some(matrices())), &device);
    let decay = add_decayed_weights(linear_schedule(0.5, 0.1, 10), None);
    scaled::<B, _>("add_decayed_weights_schedule", decay, &device);
    scaled::<B, _>("add_noise", add_noise(0.1, 0.55, Key::new(7)), &device);
}

fn adam_family<B: Backend>(device: B::Device) {
    scaled::<B, _>("scale_by_adam", scale_by_adam(Default::default()), &device);
    let options =
        ScaleByAdam { b1: 0.8.into(), b2: 0.95.into(), eps: 1e-3.into(), eps_root: 1e-3.into(), nesterov: false };
    scaled::<B, _>("scale_by_adam_root", options, &device);
    scaled::<B, _>("scale_by_adam_nesterov", ScaleByAdam::default().nesterov(true), &device);
    scaled::<B, _>("scale_by_amsgrad", ScaleByAmsgrad::default().b2(0.9), &device);
    let options = ScaleByAmsgrad::default().bias_correction_mu(false).bias_correction_nu(false);
    scaled::<B, _>("scale_by_amsgrad_uncorrected", scale_by_amsgrad(options), &device);
    scaled::<B, _>("scale_by_radam", scale_by_radam(Default::default()), &device);
    let options = ScaleByRadam::default().b2(0.9).threshold(4.5).eps_root(1e-4).nesterov(true);
    scaled::<B, _>("scale_by_radam_nesterov", options, &device);
    scaled::<B, _>("scale_by_belief", scale_by_belief(ScaleByBelief::default().eps(1e-8)), &device);
    let options = ScaleByBelief::default().b2(0.95).eps(1e-6).eps_root(1e-6).nesterov(true);
    scaled::<B, _>("scale_by_belief_nesterov", options, &device);
}

fn squares<B: Backend>(device: B::Device) {
    scaled::<B, _>("scale_by_rms", scale_by_rms(Default::default()), &device);
    let options = ScaleByRms {
        decay: 0.8.into(),
        eps: 1e-3.into(),
        initial_scale: 0.2,
        eps_in_sqrt: false,
        bias_correction: true,
    };
    scaled::<B, _>("scale_by_rms_corrected", scale_by_rms(options), &device);
    let options = ScaleByRms { eps: 1e-4.into(), ..Default::default() };
    scaled::<B, _>("scale_by_stddev", scale_by_stddev(options), &device);
    let options = ScaleByRms {
        decay: 0.8.into(),
        eps: 1e-2.into(),
        initial_scale: 20.0,
        eps_in_sqrt: false,
        bias_correction: true,
    };
    scaled::<B, _>("scale_by_stddev_corrected", scale_by_stddev(options), &device);
    scaled::<B, _>("scale_by_rss", scale_by_rss(Default::default()), &device);
    scaled::<B, _>("scale_by_rss_from_zero", ScaleByRss { initial_accumulator_value: 0.0, eps: 1e-5.into() }, &device);
    let options = ScaleByFactoredRms { min_dim_size_to_factor: 3, ..Default::default() };
    scaled::<B, _>("scale_by_factored_rms", scale_by_factored_rms(options), &device);
    let options =
        ScaleByFactoredRms { factored: false, decay_rate: 0.5.into(), epsilon: 1e-3.into(), ..Default::default() };
    scaled::<B, _>("scale_by_factored_rms_whole", options, &device);
    scaled::<B, _>("scale_by_factored_rms_default", ScaleByFactoredRms::default(), &device);
}

fn signs_and_sizes<B: Backend>(device: B::Device) {
    scaled::<B, _>("scale_by_lion", scale_by_lion(Default::default()), &device);
    scaled::<B, _>("scale_by_lion_smooth", ScaleByLion { mode: LionMode::Smooth(2.0), ..Default::default() }, &device);
    scaled::<B, _>("scale_by_lion_refined", ScaleByLion { mode: LionMode::Refined, ..Default::default() }, &device);
    scaled::<B, _>("scale_by_trust_ratio", scale_by_trust_ratio(Default::default()), &device);
    let options = ScaleByTrustRatio { min_norm: 1.5.into(), trust_coefficient: 0.3.into(), eps: 0.1.into() };
    scaled::<B, _>("scale_by_trust_ratio_options", options, &device);
    let zero = masked(set_to_zero(), by_path("a"));
    scaled::<B, _>("scale_by_trust_ratio_zero", chain((zero, ScaleByTrustRatio::default())), &device);
    scaled::<B, _>("scale_by_param_block_rms", scale_by_param_block_rms(1e-3), &device);
    let of_rank_2: Filter<B> = by_rank(2..=2);
    scaled::<B, _>("scale_by_muon", masked(scale_by_muon(Default::default()), of_rank_2), &device);
}

fn clipping<B: Backend>(device: B::Device) {
    scaled::<B, _>("clip", clip(0.25), &device);
    scaled::<B, _>("clip_by_global_norm", clip_by_global_norm(6.0), &device);
    scaled::<B, _>("clip_by_block_rms", clip_by_block_rms(0.4), &device);
    scaled::<B, _>("adaptive_grad_clip", adaptive_grad_clip(0.2), &device);
    let clip = AdaptiveGradClip { clipping: 0.1.into(), eps: 0.5.into(), axis: Some(vec![1, 2, 3]) };
    scaled::<B, _>("adaptive_grad_clip_axis", masked(clip, by_path("d")), &device);
    check_with::<B, _>("zero_nans", chain((zero_nans(), scale(-0.05))), "nans", |_, state| state, &device);
}

on_each_backend!(simple, adam_family, squares, signs_and_sizes, clipping);
