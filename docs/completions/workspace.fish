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

complete -c workspace -n "__fish_workspace_needs_command" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_needs_command" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_needs_command" -s V -l version -d 'Print version'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "snapshot" -d 'Take a snapshot of a directory and print its id'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "log" -d 'List snapshots, newest first'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "show" -d 'Show the details of a snapshot'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "ls" -d 'List a directory of a snapshot'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "cat" -d 'Print a file of a snapshot'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "diff" -d 'Show the differences between two snapshots or directories'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "merge-file" -d 'Merge two versions of a file that have a common ancestor'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "merge-tree" -d 'Merge snapshots or directories that have a common ancestor'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "checkout" -d 'Write a snapshot to a directory'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "mount" -d 'Mount all snapshots of the store as read-only directories DIR/ID'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "umount" -d 'Unmount a lazy mount, even if its process has died'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "rm" -d 'Remove snapshots and references'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "refs" -d 'List references and their target snapshots'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "ref" -d 'Create, move and remove references'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "branch" -d 'List, create or remove branches'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "tag" -d 'List, create or remove tags'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "gc" -d 'Free content that no snapshot uses'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "verify" -d 'Check all content of the store'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "export" -d 'Write a snapshot as a tar archive to stdout'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "import" -d 'Create a snapshot from a tar archive and print its id'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "import-git" -d 'Create snapshots from the history of a git repository'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "episode" -d 'Record the steps of a search'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "episodes" -d 'List the searches of a server, and their steps'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "try" -d 'Run a program on a directory without risk, then keep or drop its changes'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "run" -d 'Run a program in a new sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "exec" -d 'Run a program in an existing sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "shell" -d 'Open a terminal in a sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "ps" -d 'List sandboxes, or the commands of a sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "logs" -d 'Print the output of commands in a sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "kill" -d 'Send a signal to a command in a sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "events" -d 'Print the events of sandboxes and snapshots, oldest first'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "cp" -d 'Copy files and directories into a sandbox or out of it'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "files" -d 'Read, write, list and watch files of a sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "note" -d 'Say why: notes about the steps in a sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "ports" -d 'List the TCP ports on which programs in a sandbox listen'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "port-forward" -d 'Forward a local TCP port to a port of a sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "project" -d 'Manage projects: files that many agents share, with their history'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "complete" -d 'Merge the work in a sandbox into its project'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "history" -d 'List the versions of a file of a project, newest first'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "rollback" -d 'Restore the files that a project had at a sequence'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "policy" -d 'Manage the access policies of projects'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "review" -d 'Decide about conflicts and critical changes of projects'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "sandbox" -d 'Create, inspect and remove sandboxes'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "template" -d 'Manage templates, from which sandboxes are created'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "nfs" -d 'Mount the workspaces of sandboxes over NFS'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "key" -d 'Manage the API keys of a server; admins only'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "token" -d 'Create tokens, which give access to one sandbox'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "terminal" -d 'Open terminals for other programs, such as a web page'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "whoami" -d 'Show the key that you use, with its owner, limits and usage'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "status" -d 'Show whether a server is ready, and the results of its checks'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "completions" -d 'Print a completion script for a shell'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "generate" -d 'Write the files that are checked in'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "serve-lazy-mount" -d 'Serve a lazy mount; started by `workspace mount`'
complete -c workspace -n "__fish_workspace_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -s m -l message -d 'Message' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l ref -d 'Move this reference to the snapshot, or create it; fails if another process moves it at the same time' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l author -d 'Author [default: USER, LOGNAME, or the name of the user in /etc/passwd]' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l label -d 'Label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l parent -d 'Parent snapshot [default: the snapshot that --ref points to]; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l buffered -d 'Do not sync to disk: the snapshot survives a killed process, but not a crash of the machine'
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l no-ignore -d 'Do not read .workspaceignore files'
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand snapshot" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand log" -l ref -d 'Only the snapshot that NAME points to and its ancestors; an id works, too. Needs the store' -r
complete -c workspace -n "__fish_workspace_using_subcommand log" -s n -l limit -d 'Maximum number of snapshots' -r
complete -c workspace -n "__fish_workspace_using_subcommand log" -l server -d 'Use this server instead of the store; WORKSPACE_SERVER has no effect here' -r
complete -c workspace -n "__fish_workspace_using_subcommand log" -l api-key -d 'API key for --server; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand log" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand log" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand log" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand show" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand show" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand show" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ls" -s l -l long -d 'Also print mode, size, modification time and targets of symlinks'
complete -c workspace -n "__fish_workspace_using_subcommand ls" -s R -l recursive -d 'List subdirectories recursively'
complete -c workspace -n "__fish_workspace_using_subcommand ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand cat" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand cat" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand cat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l server -d 'URL of the server for --why [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l api-key -d 'API key for --why; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand diff" -s p -l patch -d 'Print a patch'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l stat -d 'Print the number of added and removed lines of each file'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l insight -d 'Print the insight diff: size, lines and risks of each change'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l why -d 'Print the commands and notes that caused each change, for two snapshots of a server: full ids or references'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l no-ignore -d 'Do not read .workspaceignore files in directories'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l style -d 'Style of conflict markers' -r -f -a "merge\t'Both sides'
diff3\t'Both sides and the base'
zdiff3\t'Like diff3, without common lines at the start and end of a conflict'"
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l type -d 'Merge strategy' -r -f -a "auto\t'By file name, then by content'
text\t'Merge by lines'
json\t'Merge by value'
notebook\t'Merge Jupyter notebooks by cell; outputs are taken from one side'
yaml\t'Merge by value'
toml\t'Merge by value'
crdt\t'Merge a JSON document as a CRDT, which never conflicts'
log\t'Append the lines that both sides appended'
binary\t'Take one side as a whole'"
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l path -d 'Path that determines the file type, instead of the name of OURS' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l policy -d 'JSON file with merge rules: the strategy for each path, and the resolution of conflicts (docs/merge.md)' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l priority -d 'Side that wins conflicts under rules with `"onConflict": "priority"`; by default the later version wins' -r -f -a "ours\t'Side that is merged into'
theirs\t'Side that is merged'"
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -s L -d 'Label for conflict markers: the first for OURS, the second for BASE, the third for THEIRS' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l marker-size -d 'Length of conflict markers in characters' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -s p -l stdout -d 'Print the result instead of overwriting OURS; with --json it is the field `content`'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -s q -l quiet -d 'Do not print conflicts'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l diff3 -d 'The same as --style diff3'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l zdiff3 -d 'The same as --style zdiff3'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l ours -d 'Resolve conflicts with OURS'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l theirs -d 'Resolve conflicts with THEIRS'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l union -d 'Resolve conflicts of lines by keeping both sides'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand merge-file" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l policy -d 'JSON file with merge rules: the strategy for each path, and the resolution of conflicts (docs/merge.md)' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l priority -d 'Side that wins conflicts under rules with `"onConflict": "priority"`; by default the later version wins' -r -f -a "ours\t'Side that is merged into'
theirs\t'Side that is merged'"
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -s m -l message -d 'Message' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l ref -d 'Move this reference to the snapshot, or create it; fails if another process moves it at the same time' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l author -d 'Author [default: USER, LOGNAME, or the name of the user in /etc/passwd]' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l label -d 'Label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l commit -d 'Store the result as a snapshot, even if there are conflicts, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l no-ignore -d 'Do not read .workspaceignore files in directories'
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand merge-tree" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l force -d 'Overwrite local edits and other entries in the way'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l keep-set-id -d 'Keep set-uid and set-gid bits, which are dropped by default'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l sync -d 'Sync all files to disk before the command ends'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand checkout" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand mount" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand mount" -l foreground -d 'Serve the mount in this process until it is unmounted'
complete -c workspace -n "__fish_workspace_using_subcommand mount" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand umount" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand umount" -l lazy -d 'Detach the mount point now, even if it is busy; processes that use it keep it until they end'
complete -c workspace -n "__fish_workspace_using_subcommand umount" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand umount" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand rm" -l ref -d 'Remove this reference; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand rm" -l server -d 'Use this server instead of the store; WORKSPACE_SERVER has no effect here' -r
complete -c workspace -n "__fish_workspace_using_subcommand rm" -l api-key -d 'API key for --server; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand rm" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand refs" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand refs" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand refs" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls get set rm help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls get set rm help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls get set rm help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls get set rm help" -f -a "ls" -d 'List references and their target snapshots, like `workspace refs`'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls get set rm help" -f -a "get" -d 'Print the snapshot that a reference points to'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls get set rm help" -f -a "set" -d 'Create a reference, or move it to another snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls get set rm help" -f -a "rm" -d 'Remove references; their snapshots stay'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and not __fish_seen_subcommand_from ls get set rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from ls" -l server -d 'Use this server instead of the store; WORKSPACE_SERVER has no effect here' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from ls" -l api-key -d 'API key for --server; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from get" -l server -d 'Use this server instead of the store; WORKSPACE_SERVER has no effect here' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from get" -l api-key -d 'API key for --server; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from get" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from get" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l expect -d 'Fail if the reference does not point to this snapshot' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l server -d 'Use this server instead of the store; WORKSPACE_SERVER has no effect here' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l api-key -d 'API key for --server; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l new -d 'Fail if the reference exists'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from rm" -l server -d 'Use this server instead of the store; WORKSPACE_SERVER has no effect here' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from rm" -l api-key -d 'API key for --server; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from rm" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List references and their target snapshots, like `workspace refs`'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from help" -f -a "get" -d 'Print the snapshot that a reference points to'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from help" -f -a "set" -d 'Create a reference, or move it to another snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove references; their snapshots stay'
complete -c workspace -n "__fish_workspace_using_subcommand ref; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand branch" -s d -l delete -d 'Remove this name; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand branch" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand branch" -s f -l force -d 'Move the name if it exists'
complete -c workspace -n "__fish_workspace_using_subcommand branch" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand branch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand tag" -s d -l delete -d 'Remove this name; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand tag" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand tag" -s f -l force -d 'Move the name if it exists'
complete -c workspace -n "__fish_workspace_using_subcommand tag" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand tag" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l keep-last -d 'Keep the N newest snapshots' -r
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l keep-since -d 'Keep snapshots from TIME on: a date, a time, or an age such as 36h, 7d or 2w' -r
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l dry-run -d 'Only print what would be removed'
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l keep-labelled -d 'Keep snapshots that have labels'
complete -c workspace -n "__fish_workspace_using_subcommand gc" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand gc" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand verify" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand verify" -l repair -d 'Rebuild the index from the packs first; no other process may use the store at the same time'
complete -c workspace -n "__fish_workspace_using_subcommand verify" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand verify" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand export" -s o -l output -d 'Write the archive to this file instead; an existing file is replaced when the archive is complete' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand export" -l server -d 'Use this server instead of the store; WORKSPACE_SERVER has no effect here' -r
complete -c workspace -n "__fish_workspace_using_subcommand export" -l api-key -d 'API key for --server; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand export" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand export" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand import" -s m -l message -d 'Message' -r
complete -c workspace -n "__fish_workspace_using_subcommand import" -l ref -d 'Move this reference to the snapshot, or create it; fails if another process moves it at the same time' -r
complete -c workspace -n "__fish_workspace_using_subcommand import" -l author -d 'Author [default: USER, LOGNAME, or the name of the user in /etc/passwd]' -r
complete -c workspace -n "__fish_workspace_using_subcommand import" -l label -d 'Label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand import" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand import" -l keep-set-id -d 'Keep set-uid and set-gid bits, which are dropped by default'
complete -c workspace -n "__fish_workspace_using_subcommand import" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand import-git" -l ref -d 'Move this reference to the snapshot of REV; needs a single REV' -r
complete -c workspace -n "__fish_workspace_using_subcommand import-git" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand import-git" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand import-git" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "add" -d 'Add an episode and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "update" -d 'Update an episode'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "best" -d 'Show the leaf with the highest reward'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "path" -d 'Show the steps that led to an episode, the first step first'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "tree" -d 'List episodes as a tree, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "export" -d 'Print episodes as JSON lines, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "rm" -d 'Remove episodes and their descendants'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and not __fish_seen_subcommand_from add update best path tree export rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l parent -d 'Previous episode; none for the start of a search' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l action -d 'Action taken' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l reward -d 'Reward of the step' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l visits -d 'Number of visits' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l data -d 'Custom data, as JSON' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l insight -d 'Store the insight diff against the snapshot of the parent'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l action -d 'Action taken' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l reward -d 'Reward of the step' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l visits -d 'Number of visits' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l data -d 'Custom data, as JSON, which replaces the present data; `null` removes it' -r
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from update" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from best" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from best" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from best" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from path" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from path" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from path" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from tree" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from tree" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from tree" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from export" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from export" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from rm" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add an episode and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "update" -d 'Update an episode'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "best" -d 'Show the leaf with the highest reward'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "path" -d 'Show the steps that led to an episode, the first step first'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "tree" -d 'List episodes as a tree, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "export" -d 'Print episodes as JSON lines, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove episodes and their descendants'
complete -c workspace -n "__fish_workspace_using_subcommand episode; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and not __fish_seen_subcommand_from ls subtree help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and not __fish_seen_subcommand_from ls subtree help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and not __fish_seen_subcommand_from ls subtree help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and not __fish_seen_subcommand_from ls subtree help" -f -a "ls" -d 'List searches: their first steps, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and not __fish_seen_subcommand_from ls subtree help" -f -a "subtree" -d 'Print a step and the steps after it as a tree'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and not __fish_seen_subcommand_from ls subtree help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from ls" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from ls" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from ls" -l oldest -d 'List the oldest first'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from subtree" -l depth -d 'Maximum number of levels below the step' -r
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from subtree" -l limit -d 'Maximum number of steps' -r
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from subtree" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from subtree" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from subtree" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from subtree" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from subtree" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List searches: their first steps, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from help" -f -a "subtree" -d 'Print a step and the steps after it as a tree'
complete -c workspace -n "__fish_workspace_using_subcommand episodes; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l dir -d 'Directory' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand try" -l template -d 'Run on a copy of the directory at /workspace, in a sandbox from a template: `base`, which has the programs of this system, or a template of your local server' -r
complete -c workspace -n "__fish_workspace_using_subcommand try" -l show -d 'Show a path that is hidden by default; may be repeated' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand try" -l hide -d 'Hide a path from the program; may be repeated' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand try" -l apply -d 'Write the changes that an earlier trial saved in the directory SAVED, which its error message names; with --drop, drop them' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand try" -l timeout -d 'Timeout' -r
complete -c workspace -n "__fish_workspace_using_subcommand try" -l env -d 'Environment variable; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand try" -l network -d 'Network access' -r -f -a "none\t'Loopback only'
egress\t'All networks that the machine can reach, but not the machine itself'"
complete -c workspace -n "__fish_workspace_using_subcommand try" -l allow -d 'Allowlist for `--network egress`: a host name (*.example.com for all its subdomains) or IPv4 addresses such as 10.1.0.0/16; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand try" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand try" -l keep -d 'Keep the changes without asking, whatever the exit status is'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l drop -d 'Drop the changes without asking'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l list-hidden -d 'List the hidden paths, and run nothing'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l force -d 'With --apply: overwrite files that were changed in the meantime'
complete -c workspace -n "__fish_workspace_using_subcommand try" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand try" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand run" -l template -d 'Template; see `workspace template ls`' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l name -d 'Name, which can be used instead of the id' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l env -d 'Environment variable of all commands; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l cpu -d 'Processors, such as 0.5 or 2' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l memory -d 'Memory, such as 512m or 2g' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l disk -d 'Size limit of the workspace, such as 10g' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l network -d 'Network access' -r -f -a "none\t'Loopback only'
egress\t'All networks that the machine can reach, but not the machine itself'"
complete -c workspace -n "__fish_workspace_using_subcommand run" -l allow -d 'Allowlist for `--network egress`: a host name (*.example.com for all its subdomains) or IPv4 addresses such as 10.1.0.0/16; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l label -d 'Label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l project -d 'Project that the sandbox belongs to' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l agent -d 'Agent that works in the sandbox' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l trace -d 'Automatic snapshots' -r -f -a "off\t'None'
command\t'After each command that changed files'"
complete -c workspace -n "__fish_workspace_using_subcommand run" -l follow -d 'Show later files of the project, too; needs `--project`' -r -f -a "head\t'Always the newest: /workspace is read-only'
rebase\t'Merge the changes in /workspace with the newest files whenever no command runs'"
complete -c workspace -n "__fish_workspace_using_subcommand run" -l at -d 'Start with the files of a former head of the project, by sequence or id; needs `--project`' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l on-end -d 'Treatment of changes that are not completed when the sandbox is removed or expires [default: complete]; needs `--project`' -r -f -a "complete\t'Merge them into the project'
discard\t'Discard them'"
complete -c workspace -n "__fish_workspace_using_subcommand run" -l timeout -d 'Timeout' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l tag -d 'Tag of the command, by which `workspace ps SANDBOX --tag TAG` finds it' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand run" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand run" -l allow-duplicate-name -d 'Allow a name that another sandbox of yours has; you then need ids to address them'
complete -c workspace -n "__fish_workspace_using_subcommand run" -l keep -d 'Do not remove the sandbox; print its id on stderr'
complete -c workspace -n "__fish_workspace_using_subcommand run" -s i -l interactive -d 'Forward stdin to the program'
complete -c workspace -n "__fish_workspace_using_subcommand run" -s t -l terminal -d 'Connect the program with this terminal; includes -i'
complete -c workspace -n "__fish_workspace_using_subcommand run" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l cwd -d 'Working directory [default: /workspace]' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l env -d 'Environment variable; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l user -d 'User in the sandbox, by name or id; others than `sandbox` need a sandbox with --root kept [default: sandbox]' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l timeout -d 'Timeout [default: the lifetime of the sandbox]' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l tag -d 'Tag of the command, by which `workspace ps SANDBOX --tag TAG` finds it' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand exec" -s i -l interactive -d 'Forward stdin to the program'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -s t -l terminal -d 'Connect the program with this terminal; includes -i'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -s d -l detach -d 'Run the program in the background, and print the id of the command'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l shell -d 'Shell, replaced by /bin/sh if it cannot be executed [default: /bin/bash]' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l cwd -d 'Working directory [default: /workspace]' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l env -d 'Environment variable; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l user -d 'User in the sandbox, by name or id; others than `sandbox` need a sandbox with --root kept [default: sandbox]' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand shell" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand shell" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand ps" -l tag -d 'Only commands with this tag' -r
complete -c workspace -n "__fish_workspace_using_subcommand ps" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ps" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ps" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ps" -s p -l processes -d 'List the processes that the commands and terminals of the sandbox started'
complete -c workspace -n "__fish_workspace_using_subcommand ps" -s q -l quiet -d 'Print only ids'
complete -c workspace -n "__fish_workspace_using_subcommand ps" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ps" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l tail -d 'Only the last N lines [default: 100, or all of one command]' -r
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l since -d 'Only output from TIME on: a date, a time, or an age such as 90m or 36h' -r
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand logs" -s f -l follow -d 'Follow the output until the command ends'
complete -c workspace -n "__fish_workspace_using_subcommand logs" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand kill" -s s -l signal -d 'Signal, by name or number' -r
complete -c workspace -n "__fish_workspace_using_subcommand kill" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand kill" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand kill" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand kill" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand kill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand events" -l sandbox -d 'Only events of this sandbox; a deleted one by its full id' -r
complete -c workspace -n "__fish_workspace_using_subcommand events" -l type -d 'Only events of this type, such as sandbox.created' -r
complete -c workspace -n "__fish_workspace_using_subcommand events" -l project -d 'Only events of this project and of its sandboxes' -r
complete -c workspace -n "__fish_workspace_using_subcommand events" -l after -d 'Only events after the one with this number' -r
complete -c workspace -n "__fish_workspace_using_subcommand events" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand events" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand events" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand events" -s f -l follow -d 'Wait for new events and print them'
complete -c workspace -n "__fish_workspace_using_subcommand events" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand events" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand cp" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand cp" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand cp" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand cp" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand cp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "ls" -d 'List a directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "cat" -d 'Print a file'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "put" -d 'Write a file'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "get" -d 'Copy a file to a local path'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "rm" -d 'Remove a file or directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "mkdir" -d 'Create a directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "mv" -d 'Rename a file or directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "cp" -d 'Copy a file or directory inside the sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "chmod" -d 'Set the permissions of files and directories'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "stat" -d 'Show kind, permissions, size, times, etag and owner of a file or directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "batch" -d 'Change several files with one request'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "url" -d 'Print a URL with which everybody can read or write one file, without a key'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "watch" -d 'Print changes of a directory or a file as they happen'
complete -c workspace -n "__fish_workspace_using_subcommand files; and not __fish_seen_subcommand_from ls cat put get rm mkdir mv cp chmod stat batch url watch help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from ls" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from ls" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from ls" -s l -l long -d 'Also print mode, size, modification time and targets of symlinks'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from ls" -s R -l recursive -d 'List subdirectories recursively, down to 32 levels'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cat" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cat" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cat" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cat" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cat" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from put" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from put" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from put" -l mode -d 'Permission bits in octal [default: those of the present file, or 0644]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from put" -l if-match -d 'Fail unless the present file has this etag, as `--json files ls` prints it' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from put" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from put" -s p -l parents -d 'Create missing parent directories'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from put" -l new -d 'Fail if there is a file'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from put" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from put" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from get" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from get" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from get" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from get" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from rm" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from rm" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from rm" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from rm" -s r -l recursive -d 'Remove a directory with its content'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mkdir" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mkdir" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mkdir" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mkdir" -s p -l parents -d 'Create missing parents, and succeed if the directory exists'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mkdir" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mkdir" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mv" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mv" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mv" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mv" -l replace -d 'Replace a file at the new path'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mv" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from mv" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cp" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cp" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cp" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cp" -s r -l recursive -d 'Copy a directory with its content'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cp" -l replace -d 'Replace a file at the new path'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cp" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from cp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from chmod" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from chmod" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from chmod" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from chmod" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from chmod" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from stat" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from stat" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from stat" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from stat" -l no-follow -d 'Describe a symlink itself'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from stat" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from batch" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from batch" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from batch" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from batch" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from batch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from url" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from url" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from url" -l max-size -d 'Maximum size of an upload, such as 512k or 10m' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from url" -l expires -d 'Lifetime, at most a day [default: an hour]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from url" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from url" -l upload -d 'Allow an upload (`PUT`) instead of a download'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from url" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from url" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from watch" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from watch" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from watch" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from watch" -s r -l recursive -d 'Watch everything below a directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from watch" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List a directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "cat" -d 'Print a file'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "put" -d 'Write a file'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "get" -d 'Copy a file to a local path'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove a file or directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "mkdir" -d 'Create a directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "mv" -d 'Rename a file or directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "cp" -d 'Copy a file or directory inside the sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "chmod" -d 'Set the permissions of files and directories'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show kind, permissions, size, times, etag and owner of a file or directory'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "batch" -d 'Change several files with one request'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "url" -d 'Print a URL with which everybody can read or write one file, without a key'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "watch" -d 'Print changes of a directory or a file as they happen'
complete -c workspace -n "__fish_workspace_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand note; and not __fish_seen_subcommand_from add ls help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand note; and not __fish_seen_subcommand_from add ls help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand note; and not __fish_seen_subcommand_from add ls help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand note; and not __fish_seen_subcommand_from add ls help" -f -a "add" -d 'Add a note about a step in a sandbox, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand note; and not __fish_seen_subcommand_from add ls help" -f -a "ls" -d 'List the notes of a sandbox, oldest first'
complete -c workspace -n "__fish_workspace_using_subcommand note; and not __fish_seen_subcommand_from add ls help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from add" -l command -d 'Id of the command that the note is about' -r
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from add" -l data -d 'Custom data, as a JSON object' -r
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from add" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from add" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from add" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from add" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from ls" -l command -d 'Only notes about this command' -r
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from ls" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from ls" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from ls" -l newest -d 'List the newest first'
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add a note about a step in a sandbox, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List the notes of a sandbox, oldest first'
complete -c workspace -n "__fish_workspace_using_subcommand note; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand ports" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ports" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand ports" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand ports" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand ports" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand port-forward" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand port-forward" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand port-forward" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand port-forward" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand port-forward" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "create" -d 'Create an empty project, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "ls" -d 'List projects'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "show" -d 'Show a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "rm" -d 'Delete projects with their history'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "import" -d 'Replace the files of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "export" -d 'Write the files of a project to a directory, an archive or git'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "log" -d 'List the changes of a project, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "diff" -d 'Show the differences between two states of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "rename" -d 'Rename a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "set" -d 'Change the settings of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "clone" -d 'Create a directory with the files of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "status" -d 'Show the changes in the directory of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "pull" -d 'Merge the head of a project into its directory'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "push" -d 'Merge the changes in the directory of a project into the project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "workspace" -d 'Manage workspaces of agents that run in containers of their own'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "sync" -d 'Move the workspaces of agents that have no changes to the present head'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "refused" -d 'List the changes that the policy of a project refused, or print the content of one'
complete -c workspace -n "__fish_workspace_using_subcommand project; and not __fish_seen_subcommand_from create ls show rm import export log diff rename set clone status pull push workspace sync refused help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from create" -l merge -d 'Occasions at which the changes of sandboxes are merged [default: completion]' -r -f -a "completion\t'When a sandbox is completed, removed or expires'
periodic\t'Also at intervals, when no command runs'
write\t'Also after each command that changed files'"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from create" -l interval -d 'Time between two merges of a sandbox, for `--merge periodic` [default: 10s]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from create" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from create" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from create" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from create" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from ls" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from ls" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from show" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from show" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from show" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from show" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rm" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rm" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rm" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from import" -l git -d 'Import a commit of a git repository, with its message' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from import" -s m -l message -d 'Message for the history [default of a commit: its message]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from import" -l expect -d 'Fail unless the project has this sequence or head' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from import" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from import" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from import" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from import" -l history -d 'Import the commits that first parents lead to, with author, time and message; continues an earlier import'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from import" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -l tar -d 'Write a tar archive; `-` for stdout' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -l git -d 'Write the history to a new git repository, or to a branch of an existing one' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -l bundle -d 'Write the history to a git bundle' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -l branch -d 'Branch of the git repository [default: that of HEAD, or main]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -l at -d 'Sequence or id of a former head, instead of the present files; for git, the last one that is exported' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -l author -d 'Only changes of this agent or person' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -l operation -d 'Only changes of this kind: import, merge, write, rollback or resolve' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -s n -l limit -d 'Maximum number of changes' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -l before -d 'Only changes before this sequence' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -l graph -d 'Draw the history as a picture'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from log" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from diff" -l from -d 'Sequence or id of the old head [default: the one before --to]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from diff" -l to -d 'Sequence or id of the new head [default: the present one]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from diff" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from diff" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from diff" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from diff" -l patch -d 'Print a patch in the format of git'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from diff" -l insight -d 'Print line counts, sizes and risk notes'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from diff" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rename" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rename" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rename" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rename" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from rename" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from set" -l merge -d 'Occasions at which the changes of sandboxes are merged' -r -f -a "completion\t'When a sandbox is completed, removed or expires'
periodic\t'Also at intervals, when no command runs'
write\t'Also after each command that changed files'"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from set" -l interval -d 'Time between two merges of a sandbox, for `--merge periodic` [default: 10s]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from set" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from set" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from set" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from set" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from clone" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from clone" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from clone" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from clone" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from clone" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from status" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from status" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from status" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from status" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from pull" -l conflicts -d 'Treatment of conflicts' -r -f -a "refuse\t'Change nothing'
markers\t'Merge the rest, and mark conflicting lines in text files; other files stay as they are in the directory'"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from pull" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from pull" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from pull" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from pull" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from pull" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from push" -s m -l message -d 'Message for the history' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from push" -l agent -d 'Agent that did the work [default: the name of the key]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from push" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from push" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from push" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from push" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from push" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -f -a "create" -d 'Create the workspace of an agent, and print its path'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -f -a "ls" -d 'List the workspaces of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -f -a "show" -d 'Show the workspace of an agent'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -f -a "changes" -d 'List the changes in the workspace of an agent'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -f -a "complete" -d 'Merge the work in the workspace of an agent into its project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -f -a "rebase" -d 'Merge the changes in the workspace of an agent with the present head of its project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -f -a "rm" -d 'Delete workspaces of agents, with their directories'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from workspace" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from sync" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from sync" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from sync" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from sync" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from sync" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from refused" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from refused" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from refused" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from refused" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from refused" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "create" -d 'Create an empty project, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List projects'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Delete projects with their history'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "import" -d 'Replace the files of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "export" -d 'Write the files of a project to a directory, an archive or git'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "log" -d 'List the changes of a project, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "diff" -d 'Show the differences between two states of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "rename" -d 'Rename a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "set" -d 'Change the settings of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "clone" -d 'Create a directory with the files of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show the changes in the directory of a project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "pull" -d 'Merge the head of a project into its directory'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "push" -d 'Merge the changes in the directory of a project into the project'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "workspace" -d 'Manage workspaces of agents that run in containers of their own'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "sync" -d 'Move the workspaces of agents that have no changes to the present head'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "refused" -d 'List the changes that the policy of a project refused, or print the content of one'
complete -c workspace -n "__fish_workspace_using_subcommand project; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand complete" -s m -l message -d 'Message for the history' -r
complete -c workspace -n "__fish_workspace_using_subcommand complete" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand complete" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand complete" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand complete" -l no-wait -d 'Do not wait until the changes have landed'
complete -c workspace -n "__fish_workspace_using_subcommand complete" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand complete" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand history" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand history" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand history" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand history" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand history" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand rollback" -s m -l message -d 'Message for the history' -r
complete -c workspace -n "__fish_workspace_using_subcommand rollback" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand rollback" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand rollback" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand rollback" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand rollback" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and not __fish_seen_subcommand_from show set explain help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand policy; and not __fish_seen_subcommand_from show set explain help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and not __fish_seen_subcommand_from show set explain help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and not __fish_seen_subcommand_from show set explain help" -f -a "show" -d 'Print the access policy of a project as JSON'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and not __fish_seen_subcommand_from show set explain help" -f -a "set" -d 'Set the access policy of a project from a JSON file'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and not __fish_seen_subcommand_from show set explain help" -f -a "explain" -d 'Print which rule decides about a path, and why'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and not __fish_seen_subcommand_from show set explain help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from show" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from show" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from show" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from show" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from set" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from set" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from set" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from set" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from explain" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from explain" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from explain" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from explain" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print the access policy of a project as JSON'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "set" -d 'Set the access policy of a project from a JSON file'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "explain" -d 'Print which rule decides about a path, and why'
complete -c workspace -n "__fish_workspace_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand review; and not __fish_seen_subcommand_from ls show resolve help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand review; and not __fish_seen_subcommand_from ls show resolve help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand review; and not __fish_seen_subcommand_from ls show resolve help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand review; and not __fish_seen_subcommand_from ls show resolve help" -f -a "ls" -d 'List the reviews of a project that wait for a decision, oldest first'
complete -c workspace -n "__fish_workspace_using_subcommand review; and not __fish_seen_subcommand_from ls show resolve help" -f -a "show" -d 'Show a review: the versions side by side, and what led to them'
complete -c workspace -n "__fish_workspace_using_subcommand review; and not __fish_seen_subcommand_from ls show resolve help" -f -a "resolve" -d 'Resolve a review'
complete -c workspace -n "__fish_workspace_using_subcommand review; and not __fish_seen_subcommand_from ls show resolve help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -l state -d 'Only reviews in this state' -r -f -a "open\t''
escalated\t''
resolved\t''
expired\t''"
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -l assigned -d 'Only reviews that this person or agent may resolve' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -l path -d 'Only reviews of this path' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -l completion -d 'Only reviews of the completion with this id' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -l all -d 'List decided reviews, too'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from show" -l side -d 'Print the content of this version only' -r -f -a "base\t'The version that the agent started from'
ours\t'The version that the head had when the review was opened'
theirs\t'The version of the agent'
head\t'The version of the present head'"
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from show" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from show" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from show" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from show" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l strategy -d 'Merge both versions by this strategy' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l file -d 'Take the content of this file; `-` for standard input' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l expect -d 'Version of the head that you have seen: its `version`, or a sequence' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -s m -l message -d 'Message for the history' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l ours -d 'Keep the version of the head'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l theirs -d 'Take the version of the agent'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l delete -d 'Remove the file from the project'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l edit -d 'Edit the file with conflict markers in $VISUAL, $EDITOR or vi'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from resolve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List the reviews of a project that wait for a decision, oldest first'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show a review: the versions side by side, and what led to them'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from help" -f -a "resolve" -d 'Resolve a review'
complete -c workspace -n "__fish_workspace_using_subcommand review; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "ls" -d 'List sandboxes, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "create" -d 'Create a sandbox and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "get" -d 'Show the details of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "rm" -d 'Remove sandboxes and end their processes'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "extend" -d 'Extend the lifetime of a sandbox, by at most an hour'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "timeout" -d 'Set the time after which a sandbox expires, counted from now'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "pause" -d 'Pause a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "resume" -d 'Resume a paused sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "label" -d 'Set and remove labels of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "stats" -d 'Show the resource usage of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "metrics" -d 'Show the resource usage of a sandbox over time'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "url" -d 'Print a URL that shows the HTTP server on a port of a sandbox: a preview'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "commit" -d 'Take a snapshot of a sandbox\'s workspace and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "restore" -d 'Restore a snapshot in a running sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "rebase" -d 'Merge the changes in a sandbox with the newest files of its project'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "fork" -d 'Create copies of a sandbox from its current files and print their ids'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "changes" -d 'List the changes in a sandbox since its workspace was created or restored'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "diff" -d 'Print the changes in a sandbox as a patch'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and not __fish_seen_subcommand_from ls create get rm extend timeout pause resume label stats metrics url commit restore rebase fork changes diff help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l state -d 'Only sandboxes in this state: starting, running, paused, stopping, stopped or error' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l label -d 'Only sandboxes with this label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l project -d 'Only sandboxes of this project' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l agent -d 'Only sandboxes of this agent' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l template -d 'Template; see `workspace template ls`' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l name -d 'Name, which can be used instead of the id' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l env -d 'Environment variable of all commands; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l cpu -d 'Processors, such as 0.5 or 2' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l memory -d 'Memory, such as 512m or 2g' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l disk -d 'Size limit of the workspace, such as 10g' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l network -d 'Network access' -r -f -a "none\t'Loopback only'
egress\t'All networks that the machine can reach, but not the machine itself'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l allow -d 'Allowlist for `--network egress`: a host name (*.example.com for all its subdomains) or IPv4 addresses such as 10.1.0.0/16; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l label -d 'Label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l project -d 'Project that the sandbox belongs to' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l agent -d 'Agent that works in the sandbox' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l trace -d 'Automatic snapshots' -r -f -a "off\t'None'
command\t'After each command that changed files'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l follow -d 'Show later files of the project, too; needs `--project`' -r -f -a "head\t'Always the newest: /workspace is read-only'
rebase\t'Merge the changes in /workspace with the newest files whenever no command runs'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l at -d 'Start with the files of a former head of the project, by sequence or id; needs `--project`' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l on-end -d 'Treatment of changes that are not completed when the sandbox is removed or expires [default: complete]; needs `--project`' -r -f -a "complete\t'Merge them into the project'
discard\t'Discard them'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l snapshot -d 'Snapshot on the server with the initial files; its full id [default: an empty workspace]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l dir -d 'Local directory with the initial files, which is uploaded as a snapshot; .workspaceignore files apply' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l provider -d 'Provider of the workspace [default: chosen by the server]' -r -f -a "overlay\t'An overlay over files that sandboxes share'
clone\t'Reflink copies, which share blocks until they are written'
copy\t'Full copies'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l materialize -d 'Time at which the files of --snapshot or --dir are written to disk [default: auto]' -r -f -a "auto\t'Small trees before the sandbox starts; large ones are loaded on first read and written in the background'
lazy\t'Never; files are loaded on first read'
full\t'All files before the sandbox starts'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l root -d 'Treatment of changes outside /workspace' -r -f -a "discarded\t'The root filesystem is read-only, and the home directory is in memory'
kept\t'Commits, forks and restores include the root filesystem; needs an imported template'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l nfs-allow -d 'Address or network whose clients may mount the workspace over NFS, such as 10.1.0.0/16; may be repeated [default: all that the server allows]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l timeout -d 'Lifetime [default: set by the server, an hour]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l on-timeout -d 'Treatment of the sandbox when its lifetime is over' -r -f -a "delete\t'Delete it'
pause\t'Pause it; only /workspace is kept'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l allow-duplicate-name -d 'Allow a name that another sandbox of yours has; you then need ids to address them'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l keep-workspace -d 'Keep the workspaces'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l discard -d 'Discard changes in sandboxes of projects that are not completed'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from timeout" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from timeout" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from timeout" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from timeout" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from timeout" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -l memory -d 'Keep processes and their memory'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -l timeout -d 'Lifetime from now [default: the time that was left at the pause]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from label" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from stats" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from metrics" -l since -d 'Only measurements from TIME on: a date, a time, or an age such as 90s or 10m' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from metrics" -l until -d 'Only measurements up to TIME' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from metrics" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from metrics" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from metrics" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from metrics" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from url" -l expires -d 'Lifetime, at most a day [default: an hour]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from url" -l host-header -d 'Header `Host` that the program gets' -r -f -a "keep\t'Host of the preview'
localhost\t'localhost with the port, for programs that refuse other hosts'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from url" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from url" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from url" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from url" -l path -d 'Print the URL below /preview/ of the server, which works without a preview domain; its pages have no cookies and no storage'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from url" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from url" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -s m -l message -d 'Message' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l label -d 'Label; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l buffered -d 'Do not sync to disk: the snapshot survives a killed server, but not a crash of its machine'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from commit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l no-force -d 'Fail instead of ending processes'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from restore" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rebase" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rebase" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rebase" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rebase" -l force -d 'End processes that have a file of the workspace open or mapped, or work in a directory below /workspace'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rebase" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from rebase" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l count -d 'Number of new sandboxes' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l timeout -d 'Lifetime [default: set by the server, an hour]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l on-end -d 'Treatment of changes that are not completed when a copy is removed or expires [default: that of the sandbox]' -r -f -a "complete\t'Merge them into the project'
discard\t'Discard them'"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l label -d 'Label in addition to those of the sandbox; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -s m -l message -d 'Message of the snapshot from which the copies are created' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l insight -d 'Print the insight diff: size, lines and risks of each change'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from changes" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List sandboxes, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "create" -d 'Create a sandbox and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "get" -d 'Show the details of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove sandboxes and end their processes'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "extend" -d 'Extend the lifetime of a sandbox, by at most an hour'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "timeout" -d 'Set the time after which a sandbox expires, counted from now'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "pause" -d 'Pause a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "resume" -d 'Resume a paused sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "label" -d 'Set and remove labels of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "stats" -d 'Show the resource usage of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "metrics" -d 'Show the resource usage of a sandbox over time'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "url" -d 'Print a URL that shows the HTTP server on a port of a sandbox: a preview'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "commit" -d 'Take a snapshot of a sandbox\'s workspace and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "restore" -d 'Restore a snapshot in a running sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "rebase" -d 'Merge the changes in a sandbox with the newest files of its project'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "fork" -d 'Create copies of a sandbox from its current files and print their ids'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "changes" -d 'List the changes in a sandbox since its workspace was created or restored'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "diff" -d 'Print the changes in a sandbox as a patch'
complete -c workspace -n "__fish_workspace_using_subcommand sandbox; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls show build import rm help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls show build import rm help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls show build import rm help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls show build import rm help" -f -a "ls" -d 'List the templates that are installed, and known ones that can be imported'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls show build import rm help" -f -a "show" -d 'Show a template'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls show build import rm help" -f -a "build" -d 'Create a template from a recipe'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls show build import rm help" -f -a "import" -d 'Create a template from an archive'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls show build import rm help" -f -a "rm" -d 'Remove templates that no sandbox uses'
complete -c workspace -n "__fish_workspace_using_subcommand template; and not __fish_seen_subcommand_from ls show build import rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from show" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from show" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from show" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from show" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from build" -l name -d 'Name of the template; with @VERSION if you do not want the next number' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from build" -s f -l file -d 'Recipe [default: template.toml in CONTEXT]' -r -F
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from build" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from build" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from build" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from build" -l no-cache -d 'Run all steps, also those whose results are kept from earlier builds'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from build" -l print -d 'Print the recipe, and build nothing'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from build" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from build" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List the templates that are installed, and known ones that can be imported'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show a template'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "build" -d 'Create a template from a recipe'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "import" -d 'Create a template from an archive'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove templates that no sandbox uses'
complete -c workspace -n "__fish_workspace_using_subcommand template; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and not __fish_seen_subcommand_from ls help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and not __fish_seen_subcommand_from ls help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and not __fish_seen_subcommand_from ls help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and not __fish_seen_subcommand_from ls help" -f -a "ls" -d 'List the workspaces that can be mounted, with the host, port and path to mount'
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and not __fish_seen_subcommand_from ls help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and __fish_seen_subcommand_from ls" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and __fish_seen_subcommand_from ls" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List the workspaces that can be mounted, with the host, port and path to mount'
complete -c workspace -n "__fish_workspace_using_subcommand nfs; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -f -a "ls" -d 'List all keys, including revoked ones'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -f -a "create" -d 'Create a key and print it; it is never shown again'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -f -a "rm" -d 'Revoke keys immediately'
complete -c workspace -n "__fish_workspace_using_subcommand key; and not __fish_seen_subcommand_from ls create rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l owner -d 'Owner of the sandboxes that the key has access to [default: NAME]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l role -d 'Role' -r -f -a "admin\t'All rights'
user\t'All rights on the sandboxes and snapshots of the owner'
read-only\t'Read access to the sandboxes and snapshots of the owner'
agent\t'Work of agents on projects of the owner, as far as their access policies allow'
reviewer\t'Like agent, and may resolve reviews'"
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l project -d 'Project of the owner that the key of an agent or a reviewer is bound to; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l agent -d 'Agent that the key may act for; may be repeated [default: NAME]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "ls" -d 'List all keys, including revoked ones'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "create" -d 'Create a key and print it; it is never shown again'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Revoke keys immediately'
complete -c workspace -n "__fish_workspace_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand token; and not __fish_seen_subcommand_from create help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand token; and not __fish_seen_subcommand_from create help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand token; and not __fish_seen_subcommand_from create help" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand token; and not __fish_seen_subcommand_from create help" -f -a "create" -d 'Create a token for one sandbox and print it; it is never shown again'
complete -c workspace -n "__fish_workspace_using_subcommand token; and not __fish_seen_subcommand_from create help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand token; and __fish_seen_subcommand_from create" -l right -d 'Right of the token; may be repeated' -r -f -a "files:read\t'Read files and changes'
files:write\t'Write files'
process\t'Run commands, and read their output'
terminal\t'Open terminals'
ports\t'Connect to ports'
lifecycle\t'Extend the lifetime of the sandbox, pause, resume, label and remove it, and set its timeout'
snapshot\t'Commit the workspace, and restore its snapshots'"
complete -c workspace -n "__fish_workspace_using_subcommand token; and __fish_seen_subcommand_from create" -l expires -d 'Lifetime, at most a day [default: an hour]' -r
complete -c workspace -n "__fish_workspace_using_subcommand token; and __fish_seen_subcommand_from create" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand token; and __fish_seen_subcommand_from create" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand token; and __fish_seen_subcommand_from create" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand token; and __fish_seen_subcommand_from create" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand token; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "create" -d 'Create a token for one sandbox and print it; it is never shown again'
complete -c workspace -n "__fish_workspace_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and not __fish_seen_subcommand_from create ticket rm help" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and not __fish_seen_subcommand_from create ticket rm help" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and not __fish_seen_subcommand_from create ticket rm help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and not __fish_seen_subcommand_from create ticket rm help" -f -a "create" -d 'Open a terminal in a sandbox and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and not __fish_seen_subcommand_from create ticket rm help" -f -a "ticket" -d 'Print the URL of a WebSocket to a terminal, with a ticket instead of a key'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and not __fish_seen_subcommand_from create ticket rm help" -f -a "rm" -d 'Close a terminal, and kill its program'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and not __fish_seen_subcommand_from create ticket rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l shell -d 'Shell, replaced by /bin/sh if it cannot be executed [default: /bin/bash]' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l cwd -d 'Working directory [default: /workspace]' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l env -d 'Environment variable; may be repeated' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l user -d 'User in the sandbox, by name or id; others than `sandbox` need a sandbox with --root kept [default: sandbox]' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l cols -d 'Number of columns; clients may change it' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l rows -d 'Number of rows; clients may change it' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from ticket" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from ticket" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from ticket" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from ticket" -l read-only -d 'Show the output only: the server refuses input and new sizes'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from ticket" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from ticket" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from rm" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from rm" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from rm" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from rm" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from help" -f -a "create" -d 'Open a terminal in a sandbox and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from help" -f -a "ticket" -d 'Print the URL of a WebSocket to a terminal, with a ticket instead of a key'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Close a terminal, and kill its program'
complete -c workspace -n "__fish_workspace_using_subcommand terminal; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand whoami" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand whoami" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand whoami" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand whoami" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand whoami" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand status" -l server -d 'URL of the server [default: WORKSPACE_SERVER, or http://127.0.0.1:8080]' -r
complete -c workspace -n "__fish_workspace_using_subcommand status" -l api-key -d 'API key; other users of this machine can see it on the command line [default: WORKSPACE_API_KEY, or the key of a local server]' -r
complete -c workspace -n "__fish_workspace_using_subcommand status" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand status" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c workspace -n "__fish_workspace_using_subcommand completions" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand completions" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand completions" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand generate" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand generate" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand generate" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand serve-lazy-mount" -l store -d 'Directory of the store [default: WORKSPACE_STORE, or elevo-workspace/store in the XDG data directory]' -r -f -a "(__fish_complete_directories)"
complete -c workspace -n "__fish_workspace_using_subcommand serve-lazy-mount" -l json -d 'Print data as JSON, one object per line (fields: docs/cli.md)'
complete -c workspace -n "__fish_workspace_using_subcommand serve-lazy-mount" -s h -l help -d 'Print help'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "snapshot" -d 'Take a snapshot of a directory and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "log" -d 'List snapshots, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "show" -d 'Show the details of a snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "ls" -d 'List a directory of a snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "cat" -d 'Print a file of a snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "diff" -d 'Show the differences between two snapshots or directories'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "merge-file" -d 'Merge two versions of a file that have a common ancestor'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "merge-tree" -d 'Merge snapshots or directories that have a common ancestor'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "checkout" -d 'Write a snapshot to a directory'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "mount" -d 'Mount all snapshots of the store as read-only directories DIR/ID'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "umount" -d 'Unmount a lazy mount, even if its process has died'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "rm" -d 'Remove snapshots and references'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "refs" -d 'List references and their target snapshots'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "ref" -d 'Create, move and remove references'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "branch" -d 'List, create or remove branches'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "tag" -d 'List, create or remove tags'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "gc" -d 'Free content that no snapshot uses'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "verify" -d 'Check all content of the store'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "export" -d 'Write a snapshot as a tar archive to stdout'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "import" -d 'Create a snapshot from a tar archive and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "import-git" -d 'Create snapshots from the history of a git repository'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "episode" -d 'Record the steps of a search'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "episodes" -d 'List the searches of a server, and their steps'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "try" -d 'Run a program on a directory without risk, then keep or drop its changes'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "run" -d 'Run a program in a new sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "exec" -d 'Run a program in an existing sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "shell" -d 'Open a terminal in a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "ps" -d 'List sandboxes, or the commands of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "logs" -d 'Print the output of commands in a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "kill" -d 'Send a signal to a command in a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "events" -d 'Print the events of sandboxes and snapshots, oldest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "cp" -d 'Copy files and directories into a sandbox or out of it'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "files" -d 'Read, write, list and watch files of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "note" -d 'Say why: notes about the steps in a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "ports" -d 'List the TCP ports on which programs in a sandbox listen'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "port-forward" -d 'Forward a local TCP port to a port of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "project" -d 'Manage projects: files that many agents share, with their history'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "complete" -d 'Merge the work in a sandbox into its project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "history" -d 'List the versions of a file of a project, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "rollback" -d 'Restore the files that a project had at a sequence'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "policy" -d 'Manage the access policies of projects'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "review" -d 'Decide about conflicts and critical changes of projects'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "sandbox" -d 'Create, inspect and remove sandboxes'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "template" -d 'Manage templates, from which sandboxes are created'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "nfs" -d 'Mount the workspaces of sandboxes over NFS'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "key" -d 'Manage the API keys of a server; admins only'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "token" -d 'Create tokens, which give access to one sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "terminal" -d 'Open terminals for other programs, such as a web page'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "whoami" -d 'Show the key that you use, with its owner, limits and usage'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "status" -d 'Show whether a server is ready, and the results of its checks'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "completions" -d 'Print a completion script for a shell'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "generate" -d 'Write the files that are checked in'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "serve-lazy-mount" -d 'Serve a lazy mount; started by `workspace mount`'
complete -c workspace -n "__fish_workspace_using_subcommand help; and not __fish_seen_subcommand_from snapshot log show ls cat diff merge-file merge-tree checkout mount umount rm refs ref branch tag gc verify export import import-git episode episodes try run exec shell ps logs kill events cp files note ports port-forward project complete history rollback policy review sandbox template nfs key token terminal whoami status completions generate serve-lazy-mount help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from ref" -f -a "ls" -d 'List references and their target snapshots, like `workspace refs`'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from ref" -f -a "get" -d 'Print the snapshot that a reference points to'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from ref" -f -a "set" -d 'Create a reference, or move it to another snapshot'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from ref" -f -a "rm" -d 'Remove references; their snapshots stay'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "add" -d 'Add an episode and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "update" -d 'Update an episode'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "best" -d 'Show the leaf with the highest reward'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "path" -d 'Show the steps that led to an episode, the first step first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "tree" -d 'List episodes as a tree, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "export" -d 'Print episodes as JSON lines, parents before children'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episode" -f -a "rm" -d 'Remove episodes and their descendants'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episodes" -f -a "ls" -d 'List searches: their first steps, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from episodes" -f -a "subtree" -d 'Print a step and the steps after it as a tree'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "ls" -d 'List a directory'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "cat" -d 'Print a file'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "put" -d 'Write a file'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "get" -d 'Copy a file to a local path'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "rm" -d 'Remove a file or directory'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "mkdir" -d 'Create a directory'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "mv" -d 'Rename a file or directory'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "cp" -d 'Copy a file or directory inside the sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "chmod" -d 'Set the permissions of files and directories'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "stat" -d 'Show kind, permissions, size, times, etag and owner of a file or directory'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "batch" -d 'Change several files with one request'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "url" -d 'Print a URL with which everybody can read or write one file, without a key'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "watch" -d 'Print changes of a directory or a file as they happen'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from note" -f -a "add" -d 'Add a note about a step in a sandbox, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from note" -f -a "ls" -d 'List the notes of a sandbox, oldest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "create" -d 'Create an empty project, and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "ls" -d 'List projects'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "show" -d 'Show a project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "rm" -d 'Delete projects with their history'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "import" -d 'Replace the files of a project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "export" -d 'Write the files of a project to a directory, an archive or git'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "log" -d 'List the changes of a project, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "diff" -d 'Show the differences between two states of a project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "rename" -d 'Rename a project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "set" -d 'Change the settings of a project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "clone" -d 'Create a directory with the files of a project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "status" -d 'Show the changes in the directory of a project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "pull" -d 'Merge the head of a project into its directory'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "push" -d 'Merge the changes in the directory of a project into the project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "workspace" -d 'Manage workspaces of agents that run in containers of their own'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "sync" -d 'Move the workspaces of agents that have no changes to the present head'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from project" -f -a "refused" -d 'List the changes that the policy of a project refused, or print the content of one'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "show" -d 'Print the access policy of a project as JSON'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "set" -d 'Set the access policy of a project from a JSON file'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "explain" -d 'Print which rule decides about a path, and why'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from review" -f -a "ls" -d 'List the reviews of a project that wait for a decision, oldest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from review" -f -a "show" -d 'Show a review: the versions side by side, and what led to them'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from review" -f -a "resolve" -d 'Resolve a review'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "ls" -d 'List sandboxes, newest first'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "create" -d 'Create a sandbox and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "get" -d 'Show the details of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "rm" -d 'Remove sandboxes and end their processes'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "extend" -d 'Extend the lifetime of a sandbox, by at most an hour'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "timeout" -d 'Set the time after which a sandbox expires, counted from now'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "pause" -d 'Pause a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "resume" -d 'Resume a paused sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "label" -d 'Set and remove labels of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "stats" -d 'Show the resource usage of a sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "metrics" -d 'Show the resource usage of a sandbox over time'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "url" -d 'Print a URL that shows the HTTP server on a port of a sandbox: a preview'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "commit" -d 'Take a snapshot of a sandbox\'s workspace and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "restore" -d 'Restore a snapshot in a running sandbox'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "rebase" -d 'Merge the changes in a sandbox with the newest files of its project'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "fork" -d 'Create copies of a sandbox from its current files and print their ids'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "changes" -d 'List the changes in a sandbox since its workspace was created or restored'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from sandbox" -f -a "diff" -d 'Print the changes in a sandbox as a patch'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from template" -f -a "ls" -d 'List the templates that are installed, and known ones that can be imported'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from template" -f -a "show" -d 'Show a template'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from template" -f -a "build" -d 'Create a template from a recipe'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from template" -f -a "import" -d 'Create a template from an archive'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from template" -f -a "rm" -d 'Remove templates that no sandbox uses'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from nfs" -f -a "ls" -d 'List the workspaces that can be mounted, with the host, port and path to mount'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "ls" -d 'List all keys, including revoked ones'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "create" -d 'Create a key and print it; it is never shown again'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "rm" -d 'Revoke keys immediately'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from token" -f -a "create" -d 'Create a token for one sandbox and print it; it is never shown again'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from terminal" -f -a "create" -d 'Open a terminal in a sandbox and print its id'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from terminal" -f -a "ticket" -d 'Print the URL of a WebSocket to a terminal, with a ticket instead of a key'
complete -c workspace -n "__fish_workspace_using_subcommand help; and __fish_seen_subcommand_from terminal" -f -a "rm" -d 'Close a terminal, and kill its program'
