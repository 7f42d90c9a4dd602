//! No file of a crate uses a file that uses it in turn, not even through others.
//!
//! A path is followed through re-exports to the file that defines its item. A file also uses another one if a method of
//! its type calls a method of that type which stands there. What the documentation alone imports does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::architecture::{CRATES, is_test, root, sources};
use super::files::production;

/// The path of a module within its crate; empty for the root.
type Module = Vec<String>;

/// Which files each file uses, and by which names.
type Graph = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// A name that a `use` line brings into a module.
struct Import {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

/// A source file.
struct SourceFile {
    imports: Vec<Import>,
    /// The text without comments, tests and `use` lines.
    body: String,
}

type Files = BTreeMap<Module, SourceFile>;

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns whether the text ends in the middle of a word.
fn ends_in_word(text: &str) -> bool {
    text.ends_with(is_word)
}

/// Returns the module path of a source file within its crate.
fn module_of(source: &Path, file: &Path) -> Module {
    let inner = file.strip_prefix(source).unwrap().with_extension("");
    let mut parts: Module = inner.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// Takes the `use` lines out of a text. Returns the rest.
fn take_imports(text: &str, imports: &mut Vec<Import>) -> String {
    let (mut rest, mut body) = (text, String::new());
    let mut modules_inside = 0;
    while let Some(at) = rest.find("use ") {
        let (before, behind) = rest.split_at(at);
        let line = before.rsplit('\n').next().unwrap_or(before);
        let is_line = line.trim().is_empty() || line.trim_start().starts_with("pub");
        let Some(end) = behind.find(';').filter(|_| is_line && !ends_in_word(before)) else {
            body.push_str(&rest[..at + 4]);
            rest = &rest[at + 4..];
            continue;
        };
        body.push_str(&before[..before.len() - line.len()]);
        modules_inside += before.lines().filter(|line| opens_module(line)).count();
        if !before.trim_end().ends_with("#[cfg(doc)]") {
            let mut found = Vec::new();
            expand(&mut found, &[], &behind[4..end]);
            for import in &mut found {
                import.is_public = line.trim_start().starts_with("pub");
                // The module around a module of the same file is the file itself.
                if modules_inside > 0
                    && line.starts_with(' ')
                    && import.path.first().is_some_and(|part| part == "super")
                {
                    "self".clone_into(&mut import.path[0]);
                }
            }
            imports.append(&mut found);
        }
        rest = &behind[end + 1..];
    }
    body + rest
}

/// Returns whether a line begins a module within its file.
fn opens_module(line: &str) -> bool {
    let line = line.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
    line.starts_with("mod ") && line.ends_with('{')
}

/// Takes a tree of a `use` line apart.
fn expand(imports: &mut Vec<Import>, prefix: &[String], tree: &str) {
    let tree = tree.trim();
    let (head, group) = tree.split_once('{').map_or((tree, None), |(head, group)| (head, Some(group)));
    let (head, alias) = head.split_once(" as ").unwrap_or((head, ""));
    let mut path = prefix.to_vec();
    path.extend(head.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()));
    let Some(group) = group else {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = if alias.is_empty() { path.last().cloned().unwrap_or_default() } else { alias.trim().to_owned() };
        return imports.push(Import { path, name, is_public: false });
    };
    let (mut depth, mut item) = (0, String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(imports, &path, &std::mem::take(&mut item));
                continue;
            }
            _ => {}
        }
        item.push(c);
    }
    if !item.trim().is_empty() {
        expand(imports, &path, &item);
    }
}

/// Returns the files of the crate with this source folder.
fn load(source: &Path) -> Files {
    let is_program = |file: &PathBuf| file.starts_with(source.join("bin"));
    let mut files = Files::new();
    for file in sources(source).into_iter().filter(|file| !is_test(file) && !is_program(file)) {
        let mut imports = Vec::new();
        let body = take_imports(&production(&fs::read_to_string(&file).unwrap()), &mut imports);
        files.insert(module_of(source, &file), SourceFile { imports, body });
    }
    files
}

/// Returns a path of a module as a path from the root of its crate, or `None` if it leads to another crate.
fn absolute(files: &Files, module: &[String], path: &[String]) -> Option<Vec<String>> {
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            Some([&module[..module.len().saturating_sub(ups)], &path[ups..]].concat())
        }
        first => {
            let child = [module, &[first.to_owned()]].concat();
            files.contains_key(&child).then(|| [module, path].concat())
        }
    }
}

/// Returns whether a file defines an item of this name.
fn defines(body: &str, name: &str) -> bool {
    let keywords = ["struct", "enum", "fn", "type", "const", "static", "trait", "mod", "union", "macro_rules!"];
    body.match_indices(name).any(|(at, _)| {
        let before = body[..at].trim_end();
        let is_whole = !ends_in_word(&body[..at]) && !body[at + name.len()..].starts_with(is_word);
        is_whole
            && keywords.iter().any(|keyword| {
                before.strip_suffix(keyword).is_some_and(|before| !ends_in_word(before)) && before.len() < at
            })
    })
}

/// Returns the module that defines the item at a path from the root, or `None` if another crate does.
fn resolve(files: &Files, path: &[String], seen: &mut BTreeSet<(Module, String)>) -> Option<Module> {
    let depth = path.iter().scan(Module::new(), |module, part| {
        module.push(part.clone());
        files.contains_key(module).then_some(())
    });
    let depth = depth.count();
    let (module, rest) = (path[..depth].to_vec(), &path[depth..]);
    let (Some(name), Some(file)) = (rest.first(), files.get(&module)) else { return Some(module) };
    if defines(&file.body, name) || !seen.insert((module.clone(), name.clone())) {
        return Some(module);
    }
    if let Some(import) = file.imports.iter().find(|import| import.name == *name) {
        let target = absolute(files, &module, &import.path)?;
        return resolve(files, &[&target[..], &rest[1..]].concat(), seen);
    }
    for import in file.imports.iter().filter(|import| import.name == "*") {
        let target = absolute(files, &module, &import.path[..import.path.len() - 1]);
        let found = target.and_then(|target| resolve(files, &[&target[..], rest].concat(), seen));
        if let Some(found) = found.filter(|found| files.get(found).is_some_and(|file| defines(&file.body, name))) {
            return Some(found);
        }
    }
    Some(module)
}

/// Returns the paths that stand in the text of a file.
fn inline_paths(body: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for line in body.lines() {
        // The reach of an item names a module, but uses nothing of it.
        let line = line.split_once("pub(in ").map_or(line, |(_, behind)| behind.split_once(')').map_or("", |it| it.1));
        let mut rest = line;
        while let Some(start) = rest.find(is_word) {
            let is_path_start = !rest[..start].ends_with([':', '.', '"']);
            let text = &rest[start..];
            let end = text.find(|c: char| !is_word(c) && c != ':').unwrap_or(text.len());
            let path: Vec<String> =
                text[..end].split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
            if path.len() > 1 && is_path_start {
                paths.push(path);
            }
            rest = &text[end..];
        }
    }
    paths
}

/// Returns whether a file uses a name that it shows to others as well.
fn uses_word(body: &str, name: &str) -> bool {
    body.match_indices(name).any(|(at, _)| {
        let before = &body[..at];
        let is_whole = !ends_in_word(before) && !body[at + name.len()..].starts_with(is_word);
        let is_declared = ["mod ", "fn ", "."].iter().any(|end| before.ends_with(end));
        is_whole && !is_declared
    })
}

/// Adds the uses by paths: of `use` lines, and within the text.
fn add_paths(files: &Files, graph: &mut Graph) {
    for (module, file) in files {
        let mut add = |path: &[String], target: Option<Vec<String>>| {
            let target = target.and_then(|target| resolve(files, &target, &mut BTreeSet::new()));
            if let Some(target) = target.filter(|target| target != module && files.contains_key(target)) {
                graph.entry(module.clone()).or_default().entry(target).or_default().insert(path.join("::"));
            }
        };
        for import in &file.imports {
            if !import.is_public || uses_word(&file.body, &import.name) {
                let path = import.path.strip_suffix(&["*".to_owned()]).unwrap_or(&import.path);
                add(path, absolute(files, module, path));
            }
        }
        for path in inline_paths(&file.body) {
            let imported = file.imports.iter().find(|import| import.name == path[0]);
            let full = imported.map_or_else(|| path.clone(), |import| [&import.path[..], &path[1..]].concat());
            add(&path, absolute(files, module, &full));
        }
    }
}

/// A block of methods of a type.
struct ImplBlock {
    module: Module,
    text: String,
    is_inherent: bool,
}

/// Returns the text up to the brace that closes a block, which is open.
fn block(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Returns the blocks of methods of each type of a crate, by the file and name of the type.
fn impl_blocks(files: &Files) -> BTreeMap<(Module, String), Vec<ImplBlock>> {
    let mut blocks = BTreeMap::<_, Vec<ImplBlock>>::new();
    for (module, file) in files {
        let starts = file.body.match_indices("\nimpl").filter(|(at, _)| !file.body[at + 5..].starts_with(is_word));
        for (at, _) in starts {
            let Some((head, text)) = file.body[at + 5..].split_once('{') else { continue };
            let head = without_generics(head);
            let (is_inherent, name) = head.split_once(" for ").map_or((true, &head[..]), |(_, name)| (false, name));
            let name: String = name.trim_start_matches([' ', '&']).chars().take_while(|c| is_word(*c)).collect();
            let path = [&module[..], std::slice::from_ref(&name)].concat();
            if let Some(home) = resolve(files, &path, &mut BTreeSet::new()) {
                let block = ImplBlock { module: module.clone(), text: block(text).to_owned(), is_inherent };
                blocks.entry((home, name)).or_default().push(block);
            }
        }
    }
    blocks
}

/// Returns the text without what stands in angle brackets.
fn without_generics(text: &str) -> String {
    let (mut depth, mut kept) = (0, String::new());
    for c in text.chars() {
        depth += i32::from(c == '<');
        if depth == 0 {
            kept.push(c);
        }
        depth -= i32::from(c == '>' && depth > 0);
    }
    kept
}

/// Returns the word behind each occurrence of `prefix` that `end` follows.
fn words_after<'t>(text: &'t str, prefix: &'t str, end: &'t [char]) -> impl Iterator<Item = String> + 't {
    text.match_indices(prefix).filter(|(at, _)| !ends_in_word(&text[..*at])).filter_map(move |(at, _)| {
        let behind = text[at + prefix.len()..].trim_start().trim_start_matches('.');
        let word: String = behind.chars().take_while(|c| is_word(*c)).collect();
        behind[word.len()..].starts_with(end).then_some(word).filter(|word| !word.is_empty())
    })
}

/// Adds the uses by calls of methods that stand in another file than the type's other methods.
fn add_calls(files: &Files, graph: &mut Graph) {
    for ((_, name), blocks) in impl_blocks(files) {
        let mut homes = BTreeMap::<String, BTreeSet<&Module>>::new();
        for block in blocks.iter().filter(|block| block.is_inherent) {
            for method in words_after(&block.text, "fn ", &['(', '<']) {
                homes.entry(method).or_default().insert(&block.module);
            }
        }
        for block in &blocks {
            let calls = ["self", "Self::"].into_iter().flat_map(|prefix| words_after(&block.text, prefix, &['(']));
            for method in calls {
                let Some(homes) = homes.get(&method).filter(|homes| !homes.contains(&block.module)) else { continue };
                for home in homes {
                    let uses = graph.entry(block.module.clone()).or_default().entry((*home).clone()).or_default();
                    uses.insert(format!("{name}::{method}"));
                }
            }
        }
    }
}

/// Returns the modules that can be reached from this one.
fn reachable<'g>(graph: &'g Graph, from: &Module) -> BTreeSet<&'g Module> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(module) = waiting.pop() {
        for next in graph.get(module).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(next) {
                waiting.push(next);
            }
        }
    }
    found
}

/// Returns the uses within the cycles of a graph, one line for each.
fn cycles(graph: &Graph) -> Vec<String> {
    let mut lines = Vec::new();
    for (from, targets) in graph {
        for (to, names) in targets {
            if reachable(graph, to).contains(from) {
                let name = |module: &Module| if module.is_empty() { "the root".to_owned() } else { module.join("::") };
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                lines.push(format!("  {} uses {} by {}", name(from), name(to), names.join(", ")));
            }
        }
    }
    lines
}

fn graph_of(files: &Files) -> Graph {
    let mut graph = Graph::new();
    add_paths(files, &mut graph);
    add_calls(files, &mut graph);
    graph
}

/// Returns the source folders of a package's crates: its library, and each program below `src/bin`.
fn crate_roots(folder: &str) -> Vec<PathBuf> {
    let library = root().join(folder).join("src");
    let programs = fs::read_dir(library.join("bin")).into_iter().flatten().map(|entry| entry.unwrap().path());
    programs.filter(|path| path.is_dir()).chain([library.clone()]).collect()
}

#[test]
fn files_of_a_crate_have_no_import_cycles() {
    let (mut found, mut uses) = (Vec::new(), 0);
    for folder in CRATES.iter().map(|(folder, _)| *folder).chain([".", "tests", "fuzz"]) {
        for source in crate_roots(folder) {
            let graph = graph_of(&load(&source));
            uses += graph.values().map(BTreeMap::len).sum::<usize>();
            let lines = cycles(&graph);
            if !lines.is_empty() {
                found.push(format!("{}:\n{}", source.display(), lines.join("\n")));
            }
        }
    }
    assert!(found.is_empty(), "files use each other in cycles\n{}", found.join("\n"));
    assert!(uses > 1000, "only {uses} uses were found: this test no longer reads the sources");
}

/// Returns the lines of the cycles in a crate of these files.
fn cycles_of(sources: &[(&str, &str)]) -> Vec<String> {
    let mut files = Files::new();
    for (module, text) in sources {
        let mut imports = Vec::new();
        let body = take_imports(&production(text), &mut imports);
        let module = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        files.insert(module, SourceFile { imports, body });
    }
    cycles(&graph_of(&files))
}

#[test]
fn cycles_through_a_third_file_and_re_exports_are_found() {
    let root = "mod a;\nmod b;\nmod c;\npub use self::a::A;\n";
    let (a, b) = ("use super::b::B;\npub struct A(B);\n", "pub struct B(crate::c::C);\n");
    assert_eq!(cycles_of(&[("", root), ("a", a), ("b", b), ("c", "pub struct C;\n")]), [""; 0]);
    let c = "use crate::A;\npub struct C(A);\n";
    assert_eq!(cycles_of(&[("", root), ("a", a), ("b", b), ("c", c)]).len(), 3);
}

#[test]
fn calls_of_a_parent_into_its_part_are_found() {
    let part = "use super::A;\nimpl A {\n    pub(super) fn part(&self) {}\n}\n";
    let parent = |call: &str| format!("mod part;\npub struct A;\nimpl A {{\n    fn all(&self) {{ {call} }}\n}}\n");
    assert_eq!(cycles_of(&[("a", &parent("self.all();")), ("a::part", part)]), [""; 0]);
    assert_eq!(cycles_of(&[("a", &parent("self.part();")), ("a::part", part)]).len(), 2);
    let re_exporting = "mod part;\npub use self::part::Part;\npub struct A(Part);\n";
    let part = "use super::A;\npub struct Part(Box<A>);\n";
    assert_eq!(cycles_of(&[("a", re_exporting), ("a::part", part)]).len(), 2);
}

#[test]
fn groups_aliases_and_inner_modules_of_imports_are_read() {
    let text = "use crate::wire::{packet::Header, cursor::{Reader, Writer as W}};\npub use self::a::B;\n\
                mod inner {\n    use super::c;\n}\n#[cfg(doc)]\nuse super::Doc;\nfn f() {}\n";
    let mut imports = Vec::new();
    let body = take_imports(text, &mut imports);
    let paths: Vec<String> = imports.iter().map(|import| import.path.join("::")).collect();
    let expected = [
        "crate::wire::packet::Header",
        "crate::wire::cursor::Reader",
        "crate::wire::cursor::Writer",
        "self::a::B",
        "self::c",
    ];
    assert_eq!(paths, expected);
    assert_eq!((&imports[2].name[..], imports[3].is_public), ("W", true));
    assert!(body.contains("fn f()") && !body.contains("super::"));
}
