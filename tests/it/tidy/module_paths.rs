//! Reads what a module declares and which paths it names, and follows a path to the module that
//! defines its item.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, UseTree};

/// A module as the names on the way to it from the crate root. The root is empty, `main.rs` is
/// `["main"]`.
pub(super) type ModulePath = Vec<String>;

/// One file of source.
pub(super) struct SourceFile {
    /// Its path, which begins with `src/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// One use of a module by another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Usage {
    pub(super) from: ModulePath,
    pub(super) to: ModulePath,
    pub(super) place: Place,
}

/// Where a path is written, and how.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) path: String,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.path)
    }
}

/// The names that a module declares.
#[derive(Default)]
struct Declared {
    items: BTreeSet<String>,
    /// Names brought in by `use`, with the path that each stands for.
    aliases: HashMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Words in calls of macros at module level: a name that is found nowhere else may be an item
    /// made from one.
    macro_words: BTreeSet<String>,
}

type Modules = BTreeMap<ModulePath, Declared>;

/// Reads every module of a crate and every use of one module by another, without test code.
pub(super) fn read_usages(files: &[SourceFile]) -> (BTreeSet<ModulePath>, BTreeSet<Usage>) {
    let parsed: Vec<(ModulePath, &SourceFile, syn::File)> = files
        .iter()
        .map(|file| {
            let syntax = syn::parse_file(&file.text)
                .unwrap_or_else(|error| panic!("{}: {error}", file.path));
            (module_of_file(&file.path), file, syntax)
        })
        .collect();
    let mut tests = BTreeSet::new();
    for (module, _, syntax) in &parsed {
        find_test_modules(module, &syntax.items, &mut tests);
    }
    let is_test =
        |module: &ModulePath| (1..=module.len()).any(|depth| tests.contains(&module[..depth]));
    let product: Vec<_> = parsed
        .iter()
        .filter(|(module, ..)| !is_test(module))
        .collect();

    // The root is there even when a made-up crate has no lib.rs.
    let mut modules = Modules::from([(Vec::new(), Declared::default())]);
    for (module, _, syntax) in &product {
        declare(&mut modules, module, &syntax.items);
    }
    let mut usages = BTreeSet::new();
    for (module, file, syntax) in &product {
        let mut reader = PathReader {
            modules: &modules,
            module: module.clone(),
            file: &file.path,
            usages: &mut usages,
        };
        reader.visit_file(syntax);
    }
    (modules.into_keys().collect(), usages)
}

/// Records what the items of a module declare, and those of modules written inside it.
fn declare(modules: &mut Modules, module: &ModulePath, items: &[Item]) {
    let mut declared = Declared::default();
    for item in items.iter().filter(|item| !is_test_only(attributes(item))) {
        match item {
            Item::Mod(inner) => {
                if let Some((_, items)) = &inner.content {
                    declare(modules, &child(module, &inner.ident.to_string()), items);
                }
            }
            Item::Macro(call) => {
                declared
                    .items
                    .extend(call.ident.as_ref().map(ToString::to_string));
                collect_words(call.mac.tokens.clone(), &mut declared.macro_words);
            }
            _ => declared.items.extend(name_of(item)),
        }
    }
    let mut uses = UseReader(&mut declared);
    for item in items.iter().filter(|item| !matches!(item, Item::Mod(_))) {
        uses.visit_item(item);
    }
    modules.insert(module.clone(), declared);
}

/// Returns the module of a file: `src/a/b.rs` is `["a", "b"]`, `src/lib.rs` the root.
fn module_of_file(path: &str) -> ModulePath {
    let name = path
        .strip_prefix("src/")
        .and_then(|path| path.strip_suffix(".rs"))
        .expect("a Rust file below src");
    match name {
        "lib" => Vec::new(),
        _ => name.split('/').map(str::to_owned).collect(),
    }
}

fn child(module: &[String], name: &str) -> ModulePath {
    [module, &[name.to_owned()]].concat()
}

/// Finds the modules that are declared for tests only.
fn find_test_modules(module: &[String], items: &[Item], found: &mut BTreeSet<ModulePath>) {
    for item in items {
        if let Item::Mod(inner) = item {
            let path = child(module, &inner.ident.to_string());
            if let Some((_, items)) = &inner.content {
                find_test_modules(&path, items, found);
            }
            if is_test_only(&inner.attrs) {
                found.insert(path);
            }
        }
    }
}

fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else {
            return false;
        };
        list.path.is_ident("cfg") && list.tokens.to_string() == "test"
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the name that an item has in its module.
fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn collect_words(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => _ = words.insert(word.to_string()),
            TokenTree::Group(group) => collect_words(group.stream(), words),
            _ => {}
        }
    }
}

/// Calls `found` with each path of a `use`, the name that it has here (`None` for a glob), and its
/// place.
fn read_use_tree(
    tree: &UseTree,
    before: &mut Vec<String>,
    found: &mut impl FnMut(&[String], Option<String>, Span),
) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            read_use_tree(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| read_use_tree(tree, before, found)),
        UseTree::Glob(glob) => found(before, None, glob.star_token.spans[0]),
        UseTree::Name(leaf) if leaf.ident == "self" => {
            found(before, before.last().cloned(), leaf.ident.span());
        }
        UseTree::Rename(leaf) if leaf.ident == "self" => {
            found(before, Some(leaf.rename.to_string()), leaf.ident.span());
        }
        UseTree::Name(leaf) => {
            let name = leaf.ident.to_string();
            found(&child(before, &name), Some(name.clone()), leaf.ident.span());
        }
        UseTree::Rename(leaf) => {
            let path = child(before, &leaf.ident.to_string());
            found(&path, Some(leaf.rename.to_string()), leaf.ident.span());
        }
    }
}

/// Collects the names that `use` brings into a module, also those of a block inside a function.
struct UseReader<'a>(&'a mut Declared);

impl Visit<'_> for UseReader<'_> {
    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if is_test_only(&item.attrs) {
            return;
        }
        read_use_tree(
            &item.tree,
            &mut Vec::new(),
            &mut |path, name, _| match name {
                None => self.0.globs.push(path.to_vec()),
                Some(name) if path == [name.as_str()] => {}
                Some(name) => _ = self.0.aliases.insert(name, path.to_vec()),
            },
        );
    }

    fn visit_item_mod(&mut self, _: &syn::ItemMod) {}
}

/// Where a path ends.
#[derive(Clone)]
struct Found {
    module: ModulePath,
    /// Whether it names the module itself, so that the path may go on inside it.
    is_module: bool,
}

/// Follows one path.
struct Resolver<'a> {
    modules: &'a Modules,
    /// Names that are being looked up: globs may lead back to where they began.
    open: RefCell<Vec<(ModulePath, String)>>,
}

impl Resolver<'_> {
    fn resolve(&self, module: &[String], path: &[String]) -> Option<Found> {
        let module_found = |module: &[String]| {
            Some(Found {
                module: module.to_vec(),
                is_module: true,
            })
        };
        let (first, mut rest) = path.split_first()?;
        let mut found = match first.as_str() {
            // `main.rs` names the library by its name.
            "crate" | "gputop" => module_found(&[])?,
            "self" => module_found(module)?,
            "super" => module_found(&module[..module.len().checked_sub(1)?])?,
            _ => self.look_up(module, first)?,
        };
        while let Some((name, after)) = rest.split_first()
            && found.is_module
        {
            rest = after;
            found = match name.as_str() {
                "super" => module_found(&found.module[..found.module.len().checked_sub(1)?])?,
                "self" => found,
                _ => match self.look_up(&found.module, name) {
                    Some(next) => next,
                    None => Found {
                        is_module: false,
                        ..found
                    },
                },
            };
        }
        Some(found)
    }

    /// Finds a name in a module: its items and children, then what it uses, then what its macros
    /// and globs may bring.
    fn look_up(&self, module: &[String], name: &str) -> Option<Found> {
        let inner = child(module, name);
        if self.modules.contains_key(&inner) {
            return Some(Found {
                module: inner,
                is_module: true,
            });
        }
        let declared = self.modules.get(module)?;
        let here = Some(Found {
            module: module.to_vec(),
            is_module: false,
        });
        if declared.items.contains(name) {
            return here;
        }
        let key = (module.to_vec(), name.to_owned());
        if self.open.borrow().contains(&key) {
            return None;
        }
        self.open.borrow_mut().push(key);
        let found = match declared.aliases.get(name) {
            Some(path) => self.resolve(module, path),
            None if declared.macro_words.contains(name) => here,
            None => declared.globs.iter().find_map(|path| {
                let glob = self.resolve(module, path)?;
                if glob.is_module {
                    self.look_up(&glob.module, name)
                } else {
                    None
                }
            }),
        };
        self.open.borrow_mut().pop();
        found
    }
}

/// Collects the modules that the paths of a file lead to.
struct PathReader<'a> {
    modules: &'a Modules,
    module: ModulePath,
    file: &'a str,
    usages: &'a mut BTreeSet<Usage>,
}

impl PathReader<'_> {
    fn add(&mut self, path: &[String], span: Span) {
        let resolver = Resolver {
            modules: self.modules,
            open: RefCell::default(),
        };
        if let Some(Found { module: to, .. }) = resolver.resolve(&self.module, path)
            && to != self.module
        {
            let place = Place {
                file: self.file.to_owned(),
                line: span.start().line,
                path: path.join("::"),
            };
            self.usages.insert(Usage {
                from: self.module.clone(),
                to,
                place,
            });
        }
    }

    /// Reads the paths in the tokens of a macro or an attribute: `a::b::c`, and texts that hold
    /// one, as serde has them.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_colons = |place: usize| {
            let is_colon = |place| matches!(tokens.get(place), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
            is_colon(place) && is_colon(place + 1)
        };
        let mut place = 0;
        while let Some(token) = tokens.get(place) {
            place += 1;
            match token {
                TokenTree::Group(group) => {
                    let name = match (
                        place.checked_sub(3).map(|place| &tokens[place]),
                        place.checked_sub(2).map(|place| &tokens[place]),
                    ) {
                        (Some(TokenTree::Ident(word)), Some(TokenTree::Ident(name)))
                            if word == "mod" =>
                        {
                            Some(name)
                        }
                        _ => None,
                    };
                    let is_module = name.is_some() && group.delimiter() == Delimiter::Brace;
                    self.module
                        .extend(name.filter(|_| is_module).map(ToString::to_string));
                    self.read_tokens(group.stream());
                    if is_module {
                        self.module.pop();
                    }
                }
                TokenTree::Ident(first) => {
                    let mut path = vec![first.to_string()];
                    while is_colons(place)
                        && let Some(TokenTree::Ident(name)) = tokens.get(place + 2)
                    {
                        path.push(name.to_string());
                        place += 3;
                    }
                    if path.len() > 1 {
                        self.add(&path, first.span());
                    }
                }
                TokenTree::Literal(literal) => {
                    if let Ok(syn::Lit::Str(text)) = syn::parse_str(&literal.to_string())
                        && text.value().contains("::")
                        && let Ok(path) = text.parse::<syn::Path>()
                    {
                        self.add(&names(&path.segments), literal.span());
                    }
                }
                TokenTree::Punct(_) => {}
            }
        }
    }
}

fn names(segments: &Punctuated<syn::PathSegment, syn::Token![::]>) -> Vec<String> {
    segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect()
}

impl<'ast> Visit<'ast> for PathReader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test_only(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test_only(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        read_use_tree(&item.tree, &mut Vec::new(), &mut |path, _, span| {
            self.add(path, span);
        });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            self.add(&names(&path.segments), first.ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.read_tokens(call.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.read_tokens(list.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}
