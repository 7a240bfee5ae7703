"""Programs that outlive the process: exported to files, kept in a store, or compiled for other machines."""
