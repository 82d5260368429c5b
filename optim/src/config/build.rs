use grove_backend::Backend;
use grove_tree::Tree;

use super::{OptimizerConfig, OptimizerName, ScheduleConfig, any_path};
use crate::{
    Adabelief, Adafactor, Adagrad, Adam, Adamw, Amsgrad, Boxed, Lamb, Lars, Lion, Muon, OptimError, Radam, Rmsprop,
    Scalar, ScalarOrSchedule, Sgd, adabelief, adafactor, adagrad, adam, adamw, amsgrad, apply_if_finite, boxed,
    clip_by_global_norm, lamb, lars, lion, multi_steps, muon, nadamw, radam, rmsprop, selective_transform, sgd,
};

impl OptimizerConfig {
    /// Builds the chain: gradient clipping, then the optimizer. The options `apply_if_finite`, `accumulate` and
    /// `frozen` wrap the chain, in this order from the inside out.
    ///
    /// # Errors
    /// [`OptimError`] if the configuration is invalid.
    pub fn build<B: Backend, P: Tree<B> + 'static>(&self) -> Result<Boxed<B, P>, OptimError> {
        self.check()?;
        let clip = self.clip.map(|max_norm| clip_by_global_norm(max_norm));
        let mut chain = boxed((clip, self.optimizer()?));
        if let Some(errors) = self.apply_if_finite {
            chain = boxed(apply_if_finite(chain, errors));
        }
        if let Some(every_k) = self.accumulate.filter(|&every_k| every_k > 1) {
            chain = boxed(multi_steps(chain, every_k));
        }
        if !self.frozen.is_empty() {
            chain = boxed(selective_transform(chain, any_path(&self.frozen)));
        }
        Ok(chain)
    }

    fn optimizer<B: Backend, P: Tree<B> + 'static>(&self) -> Result<Boxed<B, P>, OptimError> {
        let rate: ScalarOrSchedule<B> = match &self.learning_rate {
            ScheduleConfig::Constant(rate) => (*rate).into(),
            schedule => schedule.schedule()?.into(),
        };
        let mask = || Some(self.weight_decay_mask.filter());
        Ok(match self.name {
            OptimizerName::Sgd => {
                let Sgd { momentum, nesterov } = Sgd::default();
                boxed(sgd(
                    rate,
                    Sgd { momentum: self.maybe("momentum", momentum), nesterov: self.flag("nesterov", nesterov) },
                ))
            }
            OptimizerName::Adam => {
                let Adam { b1, b2, eps, eps_root, nesterov } = Adam::default();
                let [b1, b2, eps, eps_root] = self.numbers(["b1", "b2", "eps", "eps_root"], [b1, b2, eps, eps_root]);
                boxed(adam(rate, Adam { b1, b2, eps, eps_root, nesterov: self.flag("nesterov", nesterov) }))
            }
            OptimizerName::Adamw | OptimizerName::Nadamw => {
                let Adamw { b1, b2, eps, eps_root, weight_decay, nesterov, .. } = Adamw::default();
                let [b1, b2, eps, eps_root] = self.numbers(["b1", "b2", "eps", "eps_root"], [b1, b2, eps, eps_root]);
                let weight_decay = self.decay("weight_decay", weight_decay);
                let nesterov = self.flag("nesterov", nesterov);
                let options = Adamw { b1, b2, eps, eps_root, weight_decay, mask: mask(), nesterov };
                match self.name {
                    OptimizerName::Nadamw => boxed(nadamw(rate, options)),
                    _ => boxed(adamw(rate, options)),
                }
            }
            OptimizerName::Amsgrad => {
                let Amsgrad { b1, b2, eps, eps_root, bias_correction_mu, bias_correction_nu } = Amsgrad::default();
                let [b1, b2, eps, eps_root] = self.numbers(["b1", "b2", "eps", "eps_root"], [b1, b2, eps, eps_root]);
                let bias_correction_mu = self.flag("bias_correction_mu", bias_correction_mu);
                let bias_correction_nu = self.flag("bias_correction_nu", bias_correction_nu);
                boxed(amsgrad(rate, Amsgrad { b1, b2, eps, eps_root, bias_correction_mu, bias_correction_nu }))
            }
            OptimizerName::Radam => {
                let Radam { b1, b2, eps, eps_root, threshold, nesterov } = Radam::default();
                let names = ["b1", "b2", "eps", "eps_root", "threshold"];
                let [b1, b2, eps, eps_root, threshold] = self.numbers(names, [b1, b2, eps, eps_root, threshold]);
                let nesterov = self.flag("nesterov", nesterov);
                boxed(radam(rate, Radam { b1, b2, eps, eps_root, threshold, nesterov }))
            }
            OptimizerName::Adabelief => {
                let Adabelief { b1, b2, eps, eps_root, nesterov } = Adabelief::default();
                let [b1, b2, eps, eps_root] = self.numbers(["b1", "b2", "eps", "eps_root"], [b1, b2, eps, eps_root]);
                let nesterov = self.flag("nesterov", nesterov);
                boxed(adabelief(rate, Adabelief { b1, b2, eps, eps_root, nesterov }))
            }
            OptimizerName::Adagrad => {
                let Adagrad { initial_accumulator_value, eps } = Adagrad::default();
                let initial_accumulator_value = self.float("initial_accumulator_value", initial_accumulator_value);
                boxed(adagrad(rate, Adagrad { initial_accumulator_value, eps: self.number("eps", eps) }))
            }
            OptimizerName::Rmsprop => {
                let default = Rmsprop::default();
                let options = Rmsprop {
                    decay: self.number("decay", default.decay),
                    eps: self.number("eps", default.eps),
                    initial_scale: self.float("initial_scale", default.initial_scale),
                    eps_in_sqrt: self.flag("eps_in_sqrt", default.eps_in_sqrt),
                    centered: self.flag("centered", default.centered),
                    momentum: self.maybe("momentum", default.momentum),
                    nesterov: self.flag("nesterov", default.nesterov),
                    bias_correction: self.flag("bias_correction", default.bias_correction),
                };
                boxed(rmsprop(rate, options))
            }
            OptimizerName::Lion => {
                let Lion { b1, b2, weight_decay, .. } = Lion::default();
                let [b1, b2] = self.numbers(["b1", "b2"], [b1, b2]);
                boxed(lion(rate, Lion { b1, b2, weight_decay: self.decay("weight_decay", weight_decay), mask: mask() }))
            }
            OptimizerName::Lamb => {
                let Lamb { b1, b2, eps, eps_root, weight_decay, .. } = Lamb::default();
                let [b1, b2, eps, eps_root] = self.numbers(["b1", "b2", "eps", "eps_root"], [b1, b2, eps, eps_root]);
                let weight_decay = self.decay("weight_decay", weight_decay);
                boxed(lamb(rate, Lamb { b1, b2, eps, eps_root, weight_decay, mask: mask() }))
            }
            OptimizerName::Lars => {
                let default = Lars::default();
                let options = Lars {
                    weight_decay: self.decay("weight_decay", default.weight_decay),
                    weight_decay_mask: mask(),
                    trust_coefficient: self.number("trust_coefficient", default.trust_coefficient),
                    eps: self.number("eps", default.eps),
                    trust_ratio_mask: default.trust_ratio_mask,
                    momentum: self.number("momentum", default.momentum),
                    nesterov: self.flag("nesterov", default.nesterov),
                };
                boxed(lars(rate, options))
            }
            OptimizerName::Adafactor => {
                let default = Adafactor::default();
                let options = Adafactor {
                    min_dim_size_to_factor: self.count("min_dim_size_to_factor", default.min_dim_size_to_factor as u64)
                        as usize,
                    decay_rate: self.number("decay_rate", default.decay_rate),
                    decay_offset: self.count("decay_offset", default.decay_offset),
                    multiply_by_parameter_scale: self
                        .flag("multiply_by_parameter_scale", default.multiply_by_parameter_scale),
                    clipping_threshold: self.maybe("clipping_threshold", default.clipping_threshold),
                    momentum: self.maybe("momentum", default.momentum),
                    weight_decay_rate: self.value("weight_decay_rate").map(ScalarOrSchedule::from),
                    eps: self.number("eps", default.eps),
                    factored: self.flag("factored", default.factored),
                    weight_decay_mask: mask(),
                };
                boxed(adafactor(rate, options))
            }
            OptimizerName::Muon => {
                let default = Muon::default();
                let options = Muon {
                    ns_steps: self.count("ns_steps", default.ns_steps as u64) as usize,
                    beta: self.number("beta", default.beta),
                    eps: self.float("eps", default.eps),
                    weight_decay: self.decay("weight_decay", default.weight_decay),
                    weight_decay_mask: mask(),
                    nesterov: self.flag("nesterov", default.nesterov),
                    adaptive: self.flag("adaptive", default.adaptive),
                    adam_b1: self.number("adam_b1", default.adam_b1),
                    adam_b2: self.number("adam_b2", default.adam_b2),
                    adam_eps_root: self.number("adam_eps_root", default.adam_eps_root),
                    adam_weight_decay: self.decay("adam_weight_decay", default.adam_weight_decay),
                    adam_learning_rate: self.value("adam_learning_rate").map(ScalarOrSchedule::from),
                    consistent_rms: self.value("consistent_rms"),
                    ..Muon::default()
                };
                boxed(muon(rate, options))
            }
        })
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.options.get(name)?.as_f64()
    }

    fn float(&self, name: &str, default: f64) -> f64 {
        self.value(name).unwrap_or(default)
    }

    fn number<B: Backend>(&self, name: &str, default: Scalar<B>) -> Scalar<B> {
        self.value(name).map_or(default, Scalar::from)
    }

    fn numbers<B: Backend, const N: usize>(&self, names: [&str; N], defaults: [Scalar<B>; N]) -> [Scalar<B>; N] {
        let mut names = names.into_iter();
        defaults.map(|default| self.number(names.next().unwrap_or_default(), default))
    }

    fn decay<B: Backend>(&self, name: &str, default: ScalarOrSchedule<B>) -> ScalarOrSchedule<B> {
        self.value(name).map_or(default, ScalarOrSchedule::from)
    }

    fn maybe<B: Backend>(&self, name: &str, default: Option<Scalar<B>>) -> Option<Scalar<B>> {
        self.value(name).map(Scalar::from).or(default)
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.options.get(name).and_then(serde_json::Value::as_bool).unwrap_or(default)
    }

    fn count(&self, name: &str, default: u64) -> u64 {
        self.options.get(name).and_then(serde_json::Value::as_u64).unwrap_or(default)
    }
}
