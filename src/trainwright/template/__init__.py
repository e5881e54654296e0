"""A runtime's JobSet template as one thinks of it: patches merged in, steps, counts, resources.

Stands below admission and render, so that what is checked is exactly what is rendered:

    shape            what a template must look like before anything here reads it
    merge, patches   runtimePatches laid over the template
    merged, layout   the template of one TrainJob, patches and resources in; what frameworks see
    steps            what each replicated job takes from spec.trainer, and how many pods that makes
    pod_sets         how many pods each replicated job has, and their addresses
    resources        merging resources, counting accelerators and CPUs
    replicated_jobs, rewrite, upsert    reading and building parts of the plain JSON
"""
