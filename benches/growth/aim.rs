//! A figure beside the bound that it should keep.

/// The bound of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim {
    bound: f64,
    is_least: bool,
}

impl Aim {
    pub(crate) fn least(bound: f64) -> Self {
        Self {
            bound,
            is_least: true,
        }
    }

    pub(crate) fn most(bound: f64) -> Self {
        Self {
            bound,
            is_least: false,
        }
    }

    /// Prints the figure, its bound, and whether it is kept.
    pub(crate) fn print(self, name: &str, figure: f64) {
        let (is_kept, word) = if self.is_least {
            (figure >= self.bound, "least")
        } else {
            (figure <= self.bound, "most")
        };
        println!(
            "{} {name}: {figure:.3} (at {word} {})",
            if is_kept { "ok    " } else { "MISSED" },
            self.bound
        );
    }
}
