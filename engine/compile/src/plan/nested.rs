//! Planning of loops and branches.

use grove_backend::{
    Backend,
    ops::loops::{Block, Instruction, Kind, Place, Rows},
};

use super::{
    kind,
    planner::{Id, Planner},
};
use crate::sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop, stacked};

impl<B: Backend> Planner<'_, '_, B> {
    /// Plans an operation with sub-graphs and returns its results.
    pub(super) fn nested(&mut self, op: &HigherOrder, inputs: Vec<Id>) -> Option<Vec<Id>> {
        match op {
            HigherOrder::While(WhileLoop { cond, body, consts }) => self.while_loop(cond, body, *consts, inputs),
            HigherOrder::Scan(scan) => self.scan(scan, inputs),
            HigherOrder::Cond { branches } => self.cond(branches, inputs),
            HigherOrder::CustomJvp { function, .. } | HigherOrder::CustomVjp { function, .. } => {
                self.graph(function, inputs)
            }
        }
    }

    /// Plans a block nested in the current block.
    fn block<R>(&mut self, plan: impl FnOnce(&mut Self) -> Option<R>) -> Option<(Block, R)> {
        self.blocks.push(Block::new());
        let result = plan(self)?;
        Some((self.blocks.pop()?, result))
    }

    /// Creates places for a carry and copies its initial values there.
    fn carry(&mut self, init: &[Id]) -> Option<Vec<Place>> {
        let mut places = Vec::with_capacity(init.len());
        for id in init {
            let (first, spec) = (self.place(*id)?, self.spec(*id).clone());
            let place = self.new_place(&spec)?;
            let depth = self.depth();
            self.blocks[depth].push(Instruction::Copy(first, place));
            places.push(place);
        }
        Some(places)
    }

    /// Returns the carry in these places as values of the block at a depth.
    fn values(&mut self, like: &[Id], places: &[Place], depth: usize) -> Vec<Id> {
        let value = |(id, place): (&Id, &Place)| self.value(self.spec(*id).clone(), *place, depth);
        like.iter().zip(places).map(value).collect()
    }

    /// Copies the results of a step to the carry. A result that overlaps the old carry is first copied aside.
    fn moves(&mut self, results: &[Id], carry: &[Place]) -> Option<Block> {
        let (mut aside, mut moves) = (Block::new(), Block::new());
        for (id, place) in results.iter().zip(carry) {
            let mut result = self.place(*id)?;
            if result == *place {
                continue;
            }
            if carry.iter().any(|other| result.overlaps(*other)) {
                let free = self.new_place(&self.spec(*id).clone())?;
                aside.push(Instruction::Copy(result, free));
                result = free;
            }
            moves.push(Instruction::Copy(result, *place));
        }
        aside.extend(moves);
        Some(aside)
    }

    fn while_loop(&mut self, cond: &SubGraph, body: &SubGraph, consts: usize, mut inputs: Vec<Id>) -> Option<Vec<Id>> {
        let init = inputs.split_off(consts);
        let places = self.carry(&init)?;
        let depth = self.depth();
        let carry = self.values(&init, &places, depth + 1);
        let arguments = [inputs, carry].concat();
        let (condition, holds) = self.block(|planner| {
            let results = planner.graph(cond, arguments.clone())?;
            planner.place(*results.first()?)
        })?;
        (holds.kind == Kind::Bool && holds.len == 1).then_some(())?;
        let (mut body, moves) = self.block(|planner| {
            let results = planner.graph(body, arguments)?;
            planner.moves(&results, &places)
        })?;
        body.extend(moves);
        self.blocks[depth].push(Instruction::While { condition, holds, body });
        Some(self.values(&init, &places, depth))
    }

    fn scan(&mut self, scan: &ScanLoop, mut inputs: Vec<Id>) -> Option<Vec<Id>> {
        let ScanLoop { body: graph, length, reverse, consts, carries } = scan;
        let (length, reverse, consts, carries) = (*length, *reverse, *consts, *carries);
        let mut init = inputs.split_off(consts);
        let xs = init.split_off(carries);
        let places = self.carry(&init)?;
        let depth = self.depth();
        let (mut arguments, specs) = (inputs, graph.input_specs());
        arguments.extend(self.values(&init, &places, depth + 1));
        let mut read = Vec::with_capacity(xs.len());
        for (id, spec) in xs.into_iter().zip(&specs[consts + carries..]) {
            let (array, row) = (self.place_of_any_size(id)?, self.new_place(spec)?);
            read.push(Rows { array, row });
            arguments.push(self.value(spec.clone(), row, depth + 1));
        }
        let (body, (rows, then)) = self.block(|planner| {
            let mut results = planner.graph(graph, arguments)?;
            let mut rows = Vec::with_capacity(results.len() - carries);
            for id in results.split_off(carries) {
                rows.push((planner.place(id)?, planner.spec(id).clone()));
            }
            Some((rows, planner.moves(&results, &places)?))
        })?;
        let mut results = self.values(&init, &places, depth);
        let mut write = Vec::with_capacity(rows.len());
        for (row, spec) in rows {
            let array = self.sizes.place(kind(spec.dtype)?, length * row.len);
            write.push(Rows { array, row });
            results.push(self.value(stacked(&spec, length), array, depth));
        }
        self.blocks[depth].push(Instruction::Scan { length, reverse, read, body, write, then });
        Some(results)
    }

    fn cond(&mut self, branches: &[SubGraph], mut inputs: Vec<Id>) -> Option<Vec<Id>> {
        let operands = inputs.split_off(1);
        let index = self.place(inputs.pop()?)?;
        (matches!(index.kind, Kind::Bool | Kind::I32 | Kind::I64) && index.len > 0).then_some(())?;
        let depth = self.depth();
        let outside = std::mem::replace(&mut self.branch, depth + 1);
        let mut blocks = Vec::with_capacity(branches.len());
        for branch in branches {
            blocks.push(self.block(|planner| {
                let ids = planner.graph(branch, operands.clone())?;
                planner.places(&ids)
            })?);
        }
        self.branch = outside;
        let mut results = Vec::new();
        for (i, spec) in branches.first()?.output_specs().iter().enumerate() {
            let y = self.new_place(spec)?;
            for (block, places) in &mut blocks {
                block.push(Instruction::Copy(places[i], y));
            }
            results.push(self.value(spec.clone(), y, depth));
        }
        let blocks = blocks.into_iter().map(|(block, _)| block).collect();
        self.blocks[depth].push(Instruction::Switch(index, blocks));
        Some(results)
    }
}
