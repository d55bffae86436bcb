//! Names and words: type names are unique, closures name their parameter, comments begin with a
//! noun or a verb.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

/// The most closures with the parameter `it`, in `src`, `tests` and `benches`. Only lower it.
const MOST_CLOSURES_WITH_IT: usize = 55;

/// No comment in `src`, `tests` and `benches` begins with one of these words.
const WORDS_WITHOUT_NOUN: &[&str] = &["What", "Who", "Such", "Those", "Of", "So"];

/// Names that several types still have. None may be added; remove a name when one type has it.
const KNOWN_NAMES_TWICE: &[&str] = &[];

/// Collects the types that a file declares, with their lines. Types of an `impl` (`Err`, `Item`)
/// are not among them.
#[derive(Default)]
struct TypeNames(Vec<(String, usize)>);

impl TypeNames {
    fn add(&mut self, name: &syn::Ident) {
        self.0.push((name.to_string(), name.span().start().line));
    }
}

impl<'ast> Visit<'ast> for TypeNames {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.ident);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.add(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.ident);
        visit::visit_item_trait(self, item);
    }
}

#[test]
fn no_two_types_share_a_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in super::product() {
        let syntax = syn::parse_file(&source.text)
            .unwrap_or_else(|error| panic!("{}: {error}", source.path.display()));
        let mut types = TypeNames::default();
        types.visit_file(&syntax);
        for (name, line) in types.0 {
            places
                .entry(name)
                .or_default()
                .push(format!("{}:{line}", source.path.display()));
        }
    }
    let twice = places
        .iter()
        .filter(|(name, places)| places.len() > 1 && !KNOWN_NAMES_TWICE.contains(&name.as_str()));
    let broken: Vec<String> = twice
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    super::check("a type name is unique in src, tests included", &broken);
}

#[test]
fn closures_name_their_parameter() {
    let forms = ["|it|", "|&it|", "|mut it|", "|it:"];
    let sources = super::all();
    let count: usize = sources
        .iter()
        .filter(|source| !source.path.ends_with("words.rs"))
        .flat_map(|source| source.code().map(|(_, line)| line))
        .map(|line| {
            forms
                .iter()
                .map(|form| line.matches(form).count())
                .sum::<usize>()
        })
        .sum();
    assert!(
        count <= MOST_CLOSURES_WITH_IT,
        "{count} closures have the parameter `it`, more than {MOST_CLOSURES_WITH_IT}: name the thing, as in `|gpu|`"
    );
}

#[test]
fn comments_begin_with_a_noun_or_a_verb() {
    let sources = super::all();
    let mut broken = Vec::new();
    for source in &sources {
        for (number, line) in (1..).zip(source.text.lines()) {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                continue;
            };
            let words = comment.trim_start_matches(['/', '!']).trim_start();
            let first: &str = words
                .split(|letter: char| !letter.is_alphabetic())
                .next()
                .expect("split yields a word");
            if WORDS_WITHOUT_NOUN.contains(&first) {
                broken.push(format!(
                    "{}:{number}: {}",
                    source.path.display(),
                    line.trim()
                ));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "{} comments begin with one of {WORDS_WITHOUT_NOUN:?}\n{}",
        broken.len(),
        broken.join("\n")
    );
}
