//! Typical file operations of real tools: commit and checkout reproduce the result, times included, and
//! temporary files are not reported as changes.
//!
//! `fixture.all()` is the set of workspaces under test. `fixture.seen(id)` is a listing of a workspace, and
//! `fixture.checked_out(&snapshot)` a listing of a snapshot in the same format.

use libtest_mimic::Trial;
use workspace_workspace::NewWorkspace;

use crate::fixture::{Fixture, Setting};

/// Script that creates the files of the base snapshot.
const FILES: &str = "mkdir -p src docs bin; seq 50 > src/main.c; seq 60 > src/lib.c; echo text > docs/text;
    echo '#!/bin/sh' > bin/run; chmod 755 bin/run; ln -s ../src/main.c docs/link";

/// Script that saves files as `vim` does: it creates a swap file, tests if the directory is writable, renames the old
/// file to a backup, writes the new file, and removes backup and swap file.
const VIM: &str = "touch src/.main.c.swp; touch src/4913; rm src/4913; mv src/main.c src/main.c~;
    seq 51 > src/main.c; chmod --reference=src/main.c~ src/main.c; rm src/main.c~ src/.main.c.swp;
    echo new > docs/.text.tmp; mv docs/.text.tmp docs/text; sed -i s/5/five/ src/lib.c";

/// Script that commits, merges and compacts a Git repository.
const GIT: &str = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
    export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    git init -q -b main . && git add -A && git commit -qm first && git gc -q && git checkout -q -b side
    echo side >> src/lib.c && git mv docs/text docs/moved && git commit -qam side && git checkout -q main
    echo main >> src/main.c && git commit -qam main && git merge -q -m merged side && git gc -q --prune=now
    git status --porcelain > /dev/null && git fsck 2>/dev/null";

/// Script that installs packages as `npm` does: it unpacks them in temporary directories, renames these, and links
/// programs from one directory.
const INSTALL: &str = "mkdir -p node_modules/.bin; for p in a b c d e; do
        mkdir -p node_modules/.$p-tmp/lib; for i in 1 2 3 4 5 6 7 8 9; do echo $p$i > node_modules/.$p-tmp/lib/$i.js; done
        chmod 755 node_modules/.$p-tmp/lib/1.js; mv node_modules/.$p-tmp node_modules/$p
        ln -s ../$p/lib/1.js node_modules/.bin/$p; done
    mv node_modules/b node_modules/b-old; mkdir node_modules/b; echo new > node_modules/b/new; rm -r node_modules/b-old
    ln -sf ../b/new node_modules/.bin/b";

/// Script that unpacks a tar archive over existing files of other types.
const TAR: &str =
    "mkdir .t; cp -a src docs .t; echo other > .t/src/main.c; rm .t/docs/text; mkdir .t/docs/text;
    echo in > .t/docs/text/in; tar -C .t -cf .t.tar src docs; rm -r .t; rm docs/text;
    tar -xf .t.tar; rm .t.tar; cp -al src linked; echo more >> linked/main.c";

/// Script that creates output files from source files, and sets equal times.
const MAKE: &str =
    "mkdir -p out; for f in main lib; do cp src/$f.c out/$f.o; done; cat out/*.o > out/program;
    chmod 755 out/program; touch -d '2021-02-03 04:05:06.789' out/main.o; touch -r out/main.o src/lib.c;
    test out/program -nt out/main.o";

/// Script that synchronises directories with `rsync`, if it is installed.
const RSYNC: &str = "command -v rsync > /dev/null || exit 0; mkdir .from; cp -a src bin .from; echo x > .from/src/x;
    rm .from/src/lib.c; mkdir .from/src/new; rsync -a --delete .from/src/ src/; rsync -a --delete --inplace .from/bin/ docs/; rm -r .from";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for setting in Setting::all() {
        let mut add = |name: &str, test: fn(Setting)| trials.push(setting.trial(name, move || test(setting)));
        add("an_editors_temporary_files_are_no_changes", an_editors_temporary_files_are_no_changes);
        add("typical_tool_operations_are_committed", typical_tool_operations_are_committed);
    }
    trials
}

fn an_editors_temporary_files_are_no_changes(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot(FILES);
    fixture.all().create("a", &NewWorkspace { snapshot: Some(base.id), ..NewWorkspace::default() }).unwrap();
    fixture.run("a", VIM);
    assert_eq!(fixture.changes("a"), ["Modified docs/text", "Modified src/lib.c", "Modified src/main.c"]);
    let committed = fixture.commit("a");
    assert_eq!(fixture.checked_out(&committed), fixture.seen("a"));
}

fn typical_tool_operations_are_committed(setting: Setting) {
    let fixture = Fixture::new(setting);
    let base = fixture.snapshot(FILES);
    for (name, script) in [("git", GIT), ("install", INSTALL), ("tar", TAR), ("make", MAKE), ("rsync", RSYNC)]
    {
        fixture
            .all()
            .create(name, &NewWorkspace { snapshot: Some(base.id), ..NewWorkspace::default() })
            .unwrap();
        let first = fixture.commit(name);
        assert_eq!(first.tree, base.tree);
        fixture.run(name, script);
        let seen = fixture.seen(name);
        let committed = fixture.commit(name);
        assert_eq!(fixture.checked_out(&committed), seen, "{name}");
        let again = format!("{name}-again");
        fixture
            .all()
            .create(&again, &NewWorkspace { snapshot: Some(committed.id), ..NewWorkspace::default() })
            .unwrap();
        assert_eq!(fixture.seen(&again), seen, "{name}");
        // Another commit, of a workspace that was created from the first one.
        fixture.run(&again, "rm -rf src; mkdir src; echo again > src/again; touch -d 1999-01-01 docs");
        let committed = fixture.commit(&again);
        assert_eq!(fixture.checked_out(&committed), fixture.seen(&again), "{name}");
    }
}
