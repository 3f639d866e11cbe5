# Each target is a script of `scripts/`; this file is the list of what can be done.

.DEFAULT_GOAL := help
.PHONY: help up tour tour-projects agent test test-full check generate bench fuzz clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: ## Build the release and start the server, with sandboxes
	@scripts/up.sh

tour: ## Build the command and take a guided tour of the state engine
	@scripts/tour.sh

tour-projects: ## Build everything and take a guided tour of projects: three agents, a conflict, its review, the history
	@scripts/tour-projects.sh

agent: ## Build the guest agent, linked statically
	@scripts/agent.sh

test: ## Install what the tests need and run every test
	@scripts/test.sh

test-full: ## The same with the long crash and property campaigns, and on another kernel
	@WORKSPACE_TEST_FULL=1 scripts/test.sh

check: ## Format, lints, types on macOS, documentation, dependency directions, licences, generated files
	@scripts/check.sh

generate: ## Write the generated documents anew: completions, manual pages, settings, errors, OpenAPI
	@scripts/generate.sh

bench: ## Measure, with peers in the same run (docs/benchmarks/)
	@bench/run
	@bench/sandbox
	@bench/workspace
	@bench/merge
	@bench/projects
	@bench/sdk

fuzz: ## Fuzz stored formats, archives, merges and input from guests, clients and settings, FUZZ_SECONDS (60) each; needs cargo-fuzz
	@scripts/fuzz.sh

clean: ## Remove everything that was built
	@cargo clean
	@rm -rf bench/data
