use grove_backend::Backend;
use grove_tree::Tree;

use crate::GradientTransformation;

/// One of two transformations, chosen at run time.
#[derive(Clone, Debug)]
pub enum Either<L, R> {
    /// The first transformation.
    Left(L),
    /// The second transformation.
    Right(R),
}

/// State of [`Either`].
#[derive(Tree, Clone, Debug)]
#[tree(transparent)]
pub enum EitherState<L, R> {
    /// State of the first transformation.
    Left(L),
    /// State of the second transformation.
    Right(R),
}

const OTHER: &str = "the state does not belong to this optimizer: create it with `init`";

impl<B, P, L, R> GradientTransformation<B, P> for Either<L, R>
where
    B: Backend,
    P: Tree<B>,
    L: GradientTransformation<B, P>,
    R: GradientTransformation<B, P>,
{
    type State = EitherState<L::State, R::State>;

    fn init(&self, params: &P) -> Self::State {
        match self {
            Self::Left(inner) => EitherState::Left(inner.init(params)),
            Self::Right(inner) => EitherState::Right(inner.init(params)),
        }
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        match (self, state) {
            (Self::Left(inner), EitherState::Left(state)) => {
                let (updates, state) = inner.update(updates, state, params);
                (updates, EitherState::Left(state))
            }
            (Self::Right(inner), EitherState::Right(state)) => {
                let (updates, state) = inner.update(updates, state, params);
                (updates, EitherState::Right(state))
            }
            _ => panic!("{OTHER}"),
        }
    }

    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        match (self, state) {
            (Self::Left(inner), EitherState::Left(state)) => {
                let (params, state) = inner.step(updates, state, params);
                (params, EitherState::Left(state))
            }
            (Self::Right(inner), EitherState::Right(state)) => {
                let (params, state) = inner.step(updates, state, params);
                (params, EitherState::Right(state))
            }
            _ => panic!("{OTHER}"),
        }
    }
}
