//! Running the recorded operations.

use std::collections::HashSet;

use super::{LazyArrays, failed};
use crate::traced::{
    engine::{DeviceArray, RunError},
    lifted::lifted,
    programs::Source,
    segment::Segment,
};

impl LazyArrays {
    /// Returns the array of a tensor; computes it if necessary.
    pub(super) fn compute(&mut self, index: u32) -> Result<DeviceArray, String> {
        if !self.computed.contains_key(&index)
            && let Err(error) = self.run()
        {
            // The part that failed may be independent of the tensor.
            let part = self.segment.needed_for(|tensor| tensor == index, |tensor| self.computed.contains_key(&tensor));
            if part.len() == self.segment.len() {
                return Err(failed(error));
            }
            self.run_part(&part, |tensor| tensor == index, |_| false).map_err(failed)?;
        }
        self.existing(index, "the tensor was lost, because a program that had it as an input failed")
    }

    /// Returns a computed array, or the reason why there is none.
    fn existing(&self, index: u32, otherwise: &str) -> Result<DeviceArray, String> {
        let reason = || self.lost.get(&index).cloned().unwrap_or_else(|| otherwise.into());
        self.computed.get(&index).cloned().ok_or_else(reason)
    }

    /// Runs the recorded operations.
    pub fn run(&mut self) -> Result<(), String> {
        if self.failure.take().is_some() {
            // Remove the equations for tensors that are no longer referenced.
            let (computed, dropped) = (&self.computed, &self.dropped);
            let is_computed = |tensor| computed.contains_key(&tensor);
            self.segment = self.segment.needed_for(|tensor| !dropped.contains(&tensor), is_computed);
            self.free();
        }
        self.run_first(self.segment.len());
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Runs the first equations. If they fail, the segment is unchanged.
    pub(super) fn run_first(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.borrowed.clear();
        let [first, rest] = match count == self.segment.len() {
            true => [std::mem::take(&mut self.segment), Segment::default()],
            false => self.segment.split(count),
        };
        let is_given_up = |dropped: &HashSet<u32>, tensor| dropped.contains(&tensor) && !rest.contains(tensor);
        let dropped = std::mem::take(&mut self.dropped);
        let found = self.run_part(&first, |x| !is_given_up(&dropped, x), |x| is_given_up(&dropped, x));
        self.dropped = dropped;
        match found {
            Ok(()) => {
                self.segment = rest;
                self.free();
            }
            Err(error) => {
                if rest.len() == 0 {
                    self.segment = first;
                }
                self.failure = Some(error);
            }
        }
    }

    /// Frees arrays that are no longer referenced and not used by the segment.
    fn free(&mut self) {
        let (segment, computed, lost) = (&self.segment, &mut self.computed, &mut self.lost);
        self.dropped.retain(|tensor| {
            let is_used = segment.contains(*tensor);
            if !is_used {
                computed.remove(tensor);
                lost.remove(tensor);
            }
            is_used
        });
    }

    /// Runs some equations for some of their results. The inputs for which `is_given_up` is true are donated.
    fn run_part(
        &mut self,
        part: &Segment,
        is_result: impl Fn(u32) -> bool,
        is_given_up: impl Fn(u32) -> bool,
    ) -> Result<(), String> {
        let (inputs, results) = (part.inputs(), part.results().filter(|x| is_result(*x)).collect::<Vec<_>>());
        // Unused results are not computed, except all-reduces, for which other ranks wait.
        if results.is_empty() && !part.meets_ranks() {
            return Ok(());
        }
        let array = |x: &u32| self.existing(*x, "an input array was lost, because an earlier program failed");
        let mut arrays: Vec<DeviceArray> = inputs.iter().map(array).collect::<Result<_, _>>()?;
        let donated = inputs.iter().map(|x| is_given_up(*x)).collect();
        let lifted = lifted(part.graph(is_result));
        for data in lifted.numbers {
            arrays.push(self.engine.upload(data)?);
        }
        let program = self.programs.get(&*self.engine, &Source::new(lifted.graph), &arrays, donated)?;
        // The program must hold the only reference to the arrays that it may reuse for results.
        let given_up: Vec<u32> = inputs.iter().copied().filter(|x| is_given_up(*x)).collect();
        given_up.iter().for_each(|x| drop(self.computed.remove(x)));
        match program.run(arrays, &lifted.keys) {
            Ok(found) => {
                self.computed.extend(results.into_iter().zip(found));
                Ok(())
            }
            Err(RunError { message, inputs: arrays }) => {
                let back = inputs.into_iter().zip(arrays).filter_map(|(x, array)| Some((x, array?)));
                self.computed.extend(back.filter(|(x, _)| is_given_up(*x)));
                Err(message)
            }
        }
    }
}
