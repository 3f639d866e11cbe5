# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_workspace_global_optspecs
    string join \n store= json h/help V/version
end

function __fish_workspace_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_workspace_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_workspace_using_subcommand
    set -l cmd (__fish_workspace_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c workspace -n "__fish_workspace_needs_command" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_needs_command" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_needs_command" -s V -l version -d 'Print version'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "snapshot" -d 'Take a snapshot of a directory and print its id'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "log" -d 'List snapshots, newest first'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "show" -d 'Show everything about a snapshot'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "ls" -d 'List a directory of a snapshot'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "cat" -d 'Print a file of a snapshot'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "diff" -d 'Show what differs between two snapshots or directories'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "merge-file" -d 'Merge what two sides made of a file'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "merge-tree" -d 'Merge snapshots or directories that come from one'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "checkout" -d 'Make a directory what a snapshot holds'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "mount" -d 'Mount the lazy view: every snapshot as a read-only directory DIR/ID'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "umount" -d 'Unmount the lazy view, also one whose process has died'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "rm" -d 'Remove snapshots and references'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "refs" -d 'List the references and the snapshots they point to'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "ref" -d 'Make, move and remove references'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "branch" -d 'List, make or remove branches'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "tag" -d 'List, make or remove tags'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "gc" -d 'Remove what nothing refers to'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "verify" -d 'Read everything in the store and check it'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "export" -d 'Write a snapshot as a tar archive to stdout'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "import" -d 'Make a snapshot from a tar archive and print its id'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "import-git" -d 'Make snapshots from the history of a git repository'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "episode" -d 'Keep the steps of a search'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "try" -d 'Run a program on a directory without risk, then keep or drop what it changed'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "run" -d 'Run a program in a sandbox of its own'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "exec" -d 'Run a program in a sandbox that is there'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "shell" -d 'Open a terminal in a sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "ps" -d 'List sandboxes, or what runs and ran in one'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "logs" -d 'Print what commands in a sandbox printed'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "cp" -d 'Copy files and directories into a sandbox or out of it'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "sandbox" -d 'Make, look at and end sandboxes'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "template" -d 'Templates, from which sandboxes are created'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "key" -d 'The keys of a server, for its admins'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "status" -d 'Say whether a server works, and what it found on its machine'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "completions" -d 'Print a completion script for a shell'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "generate" -d 'Write the files that are checked in'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "serve-view" -d 'Serve a lazy view; run by `workspace mount`'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -s m -l message -d 'Why it was made' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l ref -d 'Move this reference to it, making it if need be; refused when someone else moves it meanwhile' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l author -d 'Author [default: USER, LOGNAME, or the name of the user in /etc/passwd]' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l label -d 'A label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l parent -d 'Parent snapshot, instead of the one NAME points to; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l buffered -d 'Do not wait for the disk: survives a killed process, not a crash of the machine'
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l no-ignore -d 'Take everything, whatever .workspaceignore files say'
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand log" -l ref -d 'Only what NAME points to and all before it; an id works too' -r
complete -c workspace -n "__fish_workspace_using_subcommand log" -s n -l limit -d 'At most N' -r
complete -c workspace -n "__fish_workspace_using_subcommand log" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand log" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand log" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand show" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand show" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand show" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ls" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ls" -s l -l long -d 'Also mode, size, time and where symlinks point'
complete -c workspace -n "__fish_workspace_using_subcommand ls" -s R -l recursive -d 'List all entries below, too, by path'
complete -c workspace -n "__fish_workspace_using_subcommand ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand cat" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand cat" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand cat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand diff" -s p -l patch -d 'The lines that differ, as a patch'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l stat -d 'Lines added and removed in each file'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l insight -d 'The insight diff: sizes, lines and risks of each change'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l no-ignore -d 'Take everything in a directory, whatever .workspaceignore files say'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l style -d 'Style of conflict markers' -r -f -a "merge\t'Both sides'
diff3\t'Both sides and the base'
zdiff3\t'Like diff3, without lines that both sides begin or end with'"
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l type -d 'Merge strategy' -r -f -a "auto\t'By its name, then by what is in it'
text\t'Line by line'
json\t'Value by value'
notebook\t'Cell by cell, results chosen: Jupyter notebooks'
yaml\t'Value by value'
toml\t'Value by value'
crdt\t'JSON in which nothing conflicts'
log\t'Lines that both sides appended'
binary\t'One or the other'"
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l path -d 'The path that tells the type of the file, if its name does not' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l policy -d 'A JSON file with rules: which files are merged by which strategy, and what becomes of conflicts' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l priority -d 'Side that ranks higher, for rules that go by priority' -r -f -a "ours\t'The side that is merged into'
theirs\t'The side that is merged'"
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -s L -d 'Labels of markers: of OURS, the base and THEIRS, in this order' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l marker-size -d 'Length of markers in characters' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -s p -l stdout -d 'Print the result, and leave OURS alone; with --json it is the field `content`'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -s q -l quiet -d 'Say nothing of conflicts'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l diff3 -d 'The same as --style diff3'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l zdiff3 -d 'The same as --style zdiff3'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l ours -d 'Settle conflicts for OURS'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l theirs -d 'Settle conflicts for THEIRS'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l union -d 'Settle conflicts of lines by keeping both sides'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l policy -d 'A JSON file with rules: which files are merged by which strategy, and what becomes of conflicts' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l priority -d 'Side that ranks higher, for rules that go by priority' -r -f -a "ours\t'The side that is merged into'
theirs\t'The side that is merged'"
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -s m -l message -d 'Why it was made' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l ref -d 'Move this reference to it, making it if need be; refused when someone else moves it meanwhile' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l author -d 'Author [default: USER, LOGNAME, or the name of the user in /etc/passwd]' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l label -d 'A label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l commit -d 'Make the result a snapshot, conflicts or not, and print its id as well'
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l no-ignore -d 'Take everything in a directory, whatever .workspaceignore files say'
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l force -d 'Overwrite local edits and what is in the way; other files that neither snapshot knows stay'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l keep-set-id -d 'Keep set-uid and set-gid bits, which are dropped otherwise'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l sync -d 'Return only when everything is on disk'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand mount" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand mount" -l foreground -d 'Serve it from this process, until it is unmounted'
complete -c workspace -n "__fish_workspace_using_subcommand mount" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand umount" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand umount" -l lazy -d 'Take it out of sight even while it is used; who uses it can go on'
complete -c workspace -n "__fish_workspace_using_subcommand umount" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand umount" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand rm" -l ref -d 'Remove this reference; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand rm" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand refs" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand refs" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand refs" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls set rm help" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls set rm help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls set rm help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls set rm help" -f -a "ls" -d 'List the references and the snapshots they point to, as `workspace refs` does'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls set rm help" -f -a "set" -d 'Make a reference, or move it to another snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls set rm help" -f -a "rm" -d 'Remove references; their snapshots stay'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls set rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from ls" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l expect -d 'Only move it from this snapshot: fail if it points elsewhere' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l new -d 'Only make it: fail if it exists'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from rm" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List the references and the snapshots they point to, as `workspace refs` does'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from help" -f -a "set" -d 'Make a reference, or move it to another snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove references; their snapshots stay'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand branch" -s d -l delete -d 'Remove this name; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand branch" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand branch" -s f -l force -d 'Move it if it exists'
complete -c workspace -n "__fish_workspace_using_subcommand branch" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand branch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand tag" -s d -l delete -d 'Remove this name; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand tag" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand tag" -s f -l force -d 'Move it if it exists'
complete -c workspace -n "__fish_workspace_using_subcommand tag" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand tag" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l keep-last -d 'Keep the N newest snapshots' -r
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l keep-since -d 'Keep snapshots made at or after TIME: a date, a time, or an age such as 36h, 7d or 2w' -r
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l dry-run -d 'Only say what would be done'
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l keep-labelled -d 'Keep snapshots that have labels'
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand gc" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand verify" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand verify" -l repair -d 'First build the index anew from the packs; nothing else may use the store meanwhile'
complete -c workspace -n "__fish_workspace_using_subcommand verify" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand verify" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand export" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand export" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand import" -s m -l message -d 'Why it was made' -r
complete -c workspace -n "__fish_workspace_using_subcommand import" -l ref -d 'Move this reference to it, making it if need be; refused when someone else moves it meanwhile' -r
complete -c workspace -n "__fish_workspace_using_subcommand import" -l author -d 'Author [default: USER, LOGNAME, or the name of the user in /etc/passwd]' -r
complete -c workspace -n "__fish_workspace_using_subcommand import" -l label -d 'A label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand import" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand import" -l keep-set-id -d 'Keep set-uid and set-gid bits, which are dropped otherwise'
complete -c workspace -n "__fish_workspace_using_subcommand import" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand import-git" -l ref -d 'Move this reference to the snapshot of REV, of which there is one then' -r
complete -c workspace -n "__fish_workspace_using_subcommand import-git" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand import-git" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand import-git" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "add" -d 'Add an episode and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "update" -d 'Change what is known of an episode'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "best" -d 'Show the leaf with the highest reward'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "path" -d 'Show the steps that led to an episode, the first one first'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "tree" -d 'List episodes as a tree, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "export" -d 'Print episodes as JSON lines, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "rm" -d 'Remove episodes, each with all that follow it'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l parent -d 'The episode before it; none for the start of a search' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l action -d 'Action taken' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l reward -d 'Reward of the step' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l visits -d 'Number of visits' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l data -d 'Free data to keep, as JSON' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l insight -d 'Keep the insight diff against the parent\'s snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l action -d 'Action taken' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l reward -d 'Reward of the step' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l visits -d 'Number of visits' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l data -d 'Free data to keep, as JSON, which replaces the present data; `null` removes it' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from best" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from best" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from best" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from path" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from path" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from path" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from tree" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from tree" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from tree" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from export" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from export" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from rm" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add an episode and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "update" -d 'Change what is known of an episode'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "best" -d 'Show the leaf with the highest reward'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "path" -d 'Show the steps that led to an episode, the first one first'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "tree" -d 'List episodes as a tree, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "export" -d 'Print episodes as JSON lines, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove episodes, each with all that follow it'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l dir -d 'The directory' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand try" -l template -d 'Run on a copy of the directory at /workspace, in a sandbox made from a template: base, which has the programs of this system, or one of this user\'s server' -r
complete -c workspace -n "__fish_workspace_using_subcommand try" -l show -d 'Let it see this path, which is hidden by default; may be repeated' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand try" -l hide -d 'Hide this path from it; may be repeated' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand try" -l apply -d 'Write the changes of an earlier trial that are kept aside in this directory; with --drop, drop them' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand try" -l timeout -d 'Timeout' -r
complete -c workspace -n "__fish_workspace_using_subcommand try" -l env -d 'A variable for it; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand try" -l network -d 'Network access' -r -f -a "none\t'Loopback only'
egress\t'Everything that the machine can reach, but not the machine itself'"
complete -c workspace -n "__fish_workspace_using_subcommand try" -l allow -d 'Allowlist for `--network egress`: a host name (*.example.com for all its subdomains) or IPv4 addresses such as 10.1.0.0/16; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand try" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand try" -l keep -d 'Keep what it changes, however it ends; do not ask'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l drop -d 'Drop what it changes; do not ask'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l list-hidden -d 'List the paths that are hidden, and run nothing'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l force -d 'With --apply: write over what was changed meanwhile'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand try" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand run" -l template -d 'Template; see `workspace template ls`' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l name -d 'Name; it works wherever the id does' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l env -d 'A variable for all that runs in it; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l cpu -d 'Processors, such as 0.5 or 2' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l memory -d 'Memory, such as 512m or 2g' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l disk -d 'Size limit of its workspace, such as 10g' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l network -d 'Network access' -r -f -a "none\t'Loopback only'
egress\t'Everything that the machine can reach, but not the machine itself'"
complete -c workspace -n "__fish_workspace_using_subcommand run" -l allow -d 'Allowlist for `--network egress`: a host name (*.example.com for all its subdomains) or IPv4 addresses such as 10.1.0.0/16; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l label -d 'A label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l timeout -d 'Timeout' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand run" -l allow-duplicate-name -d 'Take the name also if another sandbox of yours has it; then only ids tell the two apart'
complete -c workspace -n "__fish_workspace_using_subcommand run" -l keep -d 'Do not remove the sandbox; its id goes to stderr'
complete -c workspace -n "__fish_workspace_using_subcommand run" -s i -l interactive -d 'Pass on what comes from stdin'
complete -c workspace -n "__fish_workspace_using_subcommand run" -s t -l terminal -d 'Run it in a terminal, which this one becomes; has -i in it'
complete -c workspace -n "__fish_workspace_using_subcommand run" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l cwd -d 'Working directory [default: /workspace]' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l env -d 'A variable for it; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l timeout -d 'Timeout [default: none; the command ends with the sandbox]' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand exec" -s i -l interactive -d 'Pass on what comes from stdin'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -s t -l terminal -d 'Run it in a terminal, which this one becomes; has -i in it'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -s d -l detach -d 'Do not wait for it; print its id'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l shell -d 'Shell [default: /bin/bash, or /bin/sh where that does not exist]' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l cwd -d 'Working directory [default: /workspace]' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l env -d 'A variable for it; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand shell" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand ps" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ps" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ps" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ps" -s q -l quiet -d 'Ids alone'
complete -c workspace -n "__fish_workspace_using_subcommand ps" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ps" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l tail -d 'Only the last N lines [default: 100, or all of one command]' -r
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l since -d 'Only what was printed at or after TIME: a date, a time, or an age such as 90m or 36h' -r
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand logs" -s f -l follow -d 'Go on until the command ends'
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand cp" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand cp" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand cp" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand cp" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand cp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "ls" -d 'List sandboxes, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "create" -d 'Make a sandbox and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "get" -d 'Show everything about a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "rm" -d 'End sandboxes and all that runs in them'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "extend" -d 'Let a sandbox live longer, by an hour at most'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "label" -d 'Set and remove labels of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "stats" -d 'Show what a sandbox uses'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "commit" -d 'Make what a sandbox holds a snapshot of the server, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "restore" -d 'Make a sandbox hold a snapshot of the server, in place'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "fork" -d 'Make sandboxes that hold what a sandbox holds now, and print their ids'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "changes" -d 'List what a sandbox changed since its workspace was made, or restored'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "diff" -d 'Print what a sandbox changed as a patch'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend label stats commit restore fork changes diff help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l state -d 'Only those in this state: starting, running, stopping, stopped or error' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l label -d 'Only those with this label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l template -d 'Template; see `workspace template ls`' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l name -d 'Name; it works wherever the id does' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l env -d 'A variable for all that runs in it; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l cpu -d 'Processors, such as 0.5 or 2' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l memory -d 'Memory, such as 512m or 2g' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l disk -d 'Size limit of its workspace, such as 10g' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l network -d 'Network access' -r -f -a "none\t'Loopback only'
egress\t'Everything that the machine can reach, but not the machine itself'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l allow -d 'Allowlist for `--network egress`: a host name (*.example.com for all its subdomains) or IPv4 addresses such as 10.1.0.0/16; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l label -d 'A label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l snapshot -d 'Begin with what this snapshot of the server holds; its whole id [default: an empty workspace]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l dir -d 'Begin with what this directory holds, without what .workspaceignore files name; it becomes a snapshot of the server' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l provider -d 'Provider of the workspace [default: chosen by the server]' -r -f -a "overlay\t'Changes lie over files that all share'
clone\t'Files share their blocks until they are written to'
copy\t'Every file is written'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l materialize -d 'When the files of --snapshot or --dir are written for it [default: auto]' -r -f -a "auto\t'Few at once; many are loaded as they are read, and written meanwhile'
lazy\t'They are loaded as they are read'
full\t'All before the sandbox runs'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l timeout -d 'Lifetime [default: set by the server, an hour]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l allow-duplicate-name -d 'Take the name also if another sandbox of yours has it; then only ids tell the two apart'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l keep-workspace -d 'Keep their workspaces'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -s m -l message -d 'Why it was made' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l label -d 'A label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l buffered -d 'Do not wait for the server\'s disk: survives a killed server, not a crash of its machine'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l no-force -d 'Do nothing if processes would have to be ended'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l count -d 'Number of new sandboxes' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l timeout -d 'Lifetime [default: set by the server, an hour]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l label -d 'A label in addition to those of the sandbox; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -s m -l message -d 'Message of the snapshot that they are created from' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l insight -d 'The insight diff: sizes, lines and risks of each change'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List sandboxes, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make a sandbox and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "get" -d 'Show everything about a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "rm" -d 'End sandboxes and all that runs in them'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "extend" -d 'Let a sandbox live longer, by an hour at most'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "label" -d 'Set and remove labels of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "stats" -d 'Show what a sandbox uses'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "commit" -d 'Make what a sandbox holds a snapshot of the server, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "restore" -d 'Make a sandbox hold a snapshot of the server, in place'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "fork" -d 'Make sandboxes that hold what a sandbox holds now, and print their ids'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "changes" -d 'List what a sandbox changed since its workspace was made, or restored'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "diff" -d 'Print what a sandbox changed as a patch'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls import rm help" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls import rm help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls import rm help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls import rm help" -f -a "ls" -d 'List the templates, those that are there and those that could be'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls import rm help" -f -a "import" -d 'Make a template of an archive: of a root filesystem, of what `docker save` writes, or of an OCI layout'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls import rm help" -f -a "rm" -d 'Remove templates of which there are no sandboxes'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls import rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List the templates, those that are there and those that could be'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "import" -d 'Make a template of an archive: of a root filesystem, of what `docker save` writes, or of an OCI layout'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove templates of which there are no sandboxes'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -f -a "ls" -d 'List the keys, the revoked ones too'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -f -a "create" -d 'Make a key and print it; it is never shown again'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -f -a "rm" -d 'Revoke keys, at once'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l owner -d 'Owner whose sandboxes it gives access to [default: NAME]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l role -d 'Role' -r -f -a "admin\t'May do everything'
user\t'May do everything with what belongs to the owner'
read-only\t'May read what belongs to the owner'"
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List the keys, the revoked ones too'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make a key and print it; it is never shown again'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Revoke keys, at once'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand status" -l server -d 'The server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand status" -l api-key -d 'The key for it; others on this machine can see it here [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand status" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand status" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand completions" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand completions" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand completions" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand generate" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand generate" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand generate" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand serve-view" -l store -d 'The store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand serve-view" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand serve-view" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "snapshot" -d 'Take a snapshot of a directory and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "log" -d 'List snapshots, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "show" -d 'Show everything about a snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "ls" -d 'List a directory of a snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "cat" -d 'Print a file of a snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "diff" -d 'Show what differs between two snapshots or directories'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "merge-file" -d 'Merge what two sides made of a file'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "merge-tree" -d 'Merge snapshots or directories that come from one'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "checkout" -d 'Make a directory what a snapshot holds'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "mount" -d 'Mount the lazy view: every snapshot as a read-only directory DIR/ID'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "umount" -d 'Unmount the lazy view, also one whose process has died'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "rm" -d 'Remove snapshots and references'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "refs" -d 'List the references and the snapshots they point to'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "ref" -d 'Make, move and remove references'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "branch" -d 'List, make or remove branches'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "tag" -d 'List, make or remove tags'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "gc" -d 'Remove what nothing refers to'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "verify" -d 'Read everything in the store and check it'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "export" -d 'Write a snapshot as a tar archive to stdout'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "import" -d 'Make a snapshot from a tar archive and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "import-git" -d 'Make snapshots from the history of a git repository'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "episode" -d 'Keep the steps of a search'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "try" -d 'Run a program on a directory without risk, then keep or drop what it changed'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "run" -d 'Run a program in a sandbox of its own'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "exec" -d 'Run a program in a sandbox that is there'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "shell" -d 'Open a terminal in a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "ps" -d 'List sandboxes, or what runs and ran in one'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "logs" -d 'Print what commands in a sandbox printed'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "cp" -d 'Copy files and directories into a sandbox or out of it'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "sandbox" -d 'Make, look at and end sandboxes'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "template" -d 'Templates, from which sandboxes are created'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "key" -d 'The keys of a server, for its admins'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "status" -d 'Say whether a server works, and what it found on its machine'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "completions" -d 'Print a completion script for a shell'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "generate" -d 'Write the files that are checked in'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "serve-view" -d 'Serve a lazy view; run by `workspace mount`'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode try run exec shell ps logs cp sandbox template key status completions generate serve-view help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from ref" -f -a "ls" -d 'List the references and the snapshots they point to, as `workspace refs` does'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from ref" -f -a "set" -d 'Make a reference, or move it to another snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from ref" -f -a "rm" -d 'Remove references; their snapshots stay'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "add" -d 'Add an episode and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "update" -d 'Change what is known of an episode'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "best" -d 'Show the leaf with the highest reward'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "path" -d 'Show the steps that led to an episode, the first one first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "tree" -d 'List episodes as a tree, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "export" -d 'Print episodes as JSON lines, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "rm" -d 'Remove episodes, each with all that follow it'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "ls" -d 'List sandboxes, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "create" -d 'Make a sandbox and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "get" -d 'Show everything about a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "rm" -d 'End sandboxes and all that runs in them'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "extend" -d 'Let a sandbox live longer, by an hour at most'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "label" -d 'Set and remove labels of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "stats" -d 'Show what a sandbox uses'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "commit" -d 'Make what a sandbox holds a snapshot of the server, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "restore" -d 'Make a sandbox hold a snapshot of the server, in place'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "fork" -d 'Make sandboxes that hold what a sandbox holds now, and print their ids'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "changes" -d 'List what a sandbox changed since its workspace was made, or restored'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "diff" -d 'Print what a sandbox changed as a patch'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from template" -f -a "ls" -d 'List the templates, those that are there and those that could be'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from template" -f -a "import" -d 'Make a template of an archive: of a root filesystem, of what `docker save` writes, or of an OCI layout'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from template" -f -a "rm" -d 'Remove templates of which there are no sandboxes'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "ls" -d 'List the keys, the revoked ones too'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "create" -d 'Make a key and print it; it is never shown again'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "rm" -d 'Revoke keys, at once'
